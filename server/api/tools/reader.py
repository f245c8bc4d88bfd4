"""One call as nearly all models write it, a JSON object with a name and arguments, read character by character.

    {"name": "weather", "arguments": {"city": "Ulm"}}      or "parameters" in place of "arguments", in either order

Knows JSON's outlines, not every rule of it: what a model writes wrong inside the arguments is handed on as it is.
"""

import json
from enum import Enum, auto

ARGUMENTS = ("arguments", "parameters")
SPACE = " \t\r\n"


class _At(Enum):
    """What comes next."""

    OBJECT = auto()
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    VALUE = auto()
    IN_VALUE = auto()
    COMMA = auto()
    END = auto()
    NOWHERE = auto()  # this is no such object


class CallReader:
    """name and arguments appear as soon as they are sure. raw is all that was read, for what proves to be no call."""

    def __init__(self) -> None:
        self.raw = ""
        self.name: str | None = None
        self.has_arguments = False
        self._at = _At.OBJECT
        self._key = self._value = ""
        self._depth = 0
        self._quoted = self._escaped = False
        self._fresh = ""  # arguments that nobody took yet

    @property
    def done(self) -> bool:
        """The object is complete."""
        return self._at is _At.END

    @property
    def broken(self) -> bool:
        """It is no call: no object, or one without a name."""
        return self._at is _At.NOWHERE or (self.done and self.name is None)

    @property
    def between_values(self) -> bool:
        """A value is complete, and neither a comma nor the end has come."""
        return self._at is _At.COMMA

    def push(self, text: str) -> str:
        """Read on; what is left when the object is complete or broken."""
        for position, character in enumerate(text):
            if self._at in (_At.END, _At.NOWHERE):
                return text[position:]
            self.raw += character
            self._step(character)
        return ""

    def take(self) -> str:
        """Arguments that were read since the last call of this."""
        fresh, self._fresh = self._fresh, ""
        return fresh

    def _step(self, character: str) -> None:
        if self._at is _At.IN_KEY:
            self._in_key(character)
        elif self._at is _At.IN_VALUE:
            self._in_value(character)
        elif character not in SPACE:
            self._outside(character)

    def _outside(self, character: str) -> None:
        """Between strings and values, where space means nothing."""
        match self._at, character:
            case _At.OBJECT, "{":
                self._at = _At.KEY
            case _At.KEY, '"':
                self._at, self._key = _At.IN_KEY, '"'
            case _At.COLON, ":":
                self._at = _At.VALUE
            case _At.VALUE, _:
                self._begin_value(character)
            case _At.COMMA, ",":
                self._at = _At.KEY
            case ((_At.COMMA | _At.KEY), "}"):
                self._at = _At.END
            case _:
                self._at = _At.NOWHERE

    def _in_key(self, character: str) -> None:
        self._key += character
        if self._string_ends(character):
            self._key = str(_decoded(self._key))
            self._at = _At.COLON

    def _string_ends(self, character: str) -> bool:
        """Whether this character of a string is its closing quote."""
        if self._escaped:
            self._escaped = False
            return False
        self._escaped = character == "\\"
        return character == '"'

    def _begin_value(self, character: str) -> None:
        self._at, self._value, self._depth = _At.IN_VALUE, "", 0
        self._quoted = self._escaped = False
        if self._key in ARGUMENTS and character == "{":
            self.has_arguments = True
        self._in_value(character)

    def _in_value(self, character: str) -> None:
        if not self._quoted and self._depth == 0 and self._value and character in ",}" + SPACE:
            self._end_value()  # of a number or a word, which only what follows ends
            if character not in SPACE:
                self._outside(character)
            return
        self._value += character
        if self._key in ARGUMENTS and self._value[0] == "{":
            self._fresh += character
        if self._quoted:
            self._quoted = not self._string_ends(character)
        elif character == '"':
            self._quoted = True
        else:
            self._depth += (character in "{[") - (character in "}]")
        if not self._quoted and self._depth == 0 and character in '"}]':
            self._end_value()

    def _end_value(self) -> None:
        self._at = _At.COMMA
        if self._key == "name":
            name = _decoded(self._value)
            self.name = name if isinstance(name, str) and name else None
        elif self._key in ARGUMENTS and self._value[0] != "{":
            self.has_arguments = True
            inner = _decoded(self._value)  # some models write the object's text as a string; others null for none
            self._fresh += inner if isinstance(inner, str) else "{}" if inner is None else self._value


def _decoded(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text
