"""Stop strings in a text that arrives in pieces. Knows characters; knows neither tokens nor where the text comes from.

The rule, for any split of the text into pieces: the match that completes first ends the text; of those that complete
at the same character, the one that starts earliest. The text ends before the match, or with it if that is wanted. Until
a match is complete, only the longest tail that could still become one is held back.

One pass with an automaton over all strings at once (Aho and Corasick, Efficient string matching, 1975): constant work
per character, whatever the strings, and per piece a copy of what is held back.
"""

from collections import deque
from collections.abc import Sequence


class _Automaton:
    """States are the beginnings of the strings; a state is the longest one that the text so far ends with."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.next: list[dict[str, int]] = [{}]
        self.depth = [0]  # how many characters the state holds
        self.match = [0]  # length of the longest string that ends here; 0 for none
        self.fallback = [0]  # the longest shorter state that this one ends with
        for string in strings:
            self._add(string)
        self._link()

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while state and character not in self.next[state]:
            state = self.fallback[state]
        return self.next[state].get(character, 0)

    def _add(self, string: str) -> None:
        state = 0
        for character in string:
            if character not in self.next[state]:
                self.next[state][character] = len(self.next)
                self.next.append({})
                self.depth.append(self.depth[state] + 1)
                self.match.append(0)
                self.fallback.append(0)
            state = self.next[state][character]
        self.match[state] = len(string)

    def _link(self) -> None:
        """Fallbacks and matches by length of state, shorter first."""
        queue = deque(self.next[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self.next[state].items():
                self.fallback[child] = self.step(self.fallback[state], character)
                self.match[child] = self.match[child] or self.match[self.fallback[child]]
                queue.append(child)


class StopMatcher:
    """Watches one answer. stops are not empty strings. include: the one that ends the text is part of it."""

    def __init__(self, stops: Sequence[str] = (), *, include: bool = False) -> None:
        assert all(stops), f"an empty stop string would end every text at once: {stops!r}"
        self._include = include
        self._automaton = _Automaton(stops) if stops else None
        self._state = 0
        self._held = ""
        self._num_emitted = 0
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, once one has."""
        return self._matched

    @property
    def num_emitted(self) -> int:
        """Characters emitted so far."""
        return self._num_emitted

    def push(self, text: str) -> tuple[str, bool]:
        """More text: what may be emitted now, and whether a stop string has ended the text. Not after it has."""
        assert self._matched is None, f"text after the stop string {self._matched!r}"
        if self._automaton is None:
            return self._emit(text), False
        whole = self._held + text
        for end in range(len(self._held), len(whole)):
            self._state = self._automaton.step(self._state, whole[end])
            if length := self._automaton.match[self._state]:
                start = end + 1 - length
                self._held, self._matched = "", whole[start : end + 1]
                return self._emit(whole[: end + 1 if self._include else start]), True
        free = len(whole) - self._automaton.depth[self._state]
        self._held = whole[free:]
        return self._emit(whole[:free]), False

    def flush(self) -> str:
        """The text has ended without a stop string: what was held back."""
        held, self._held, self._state = self._held, "", 0
        return self._emit(held)

    def _emit(self, text: str) -> str:
        self._num_emitted += len(text)
        return text
