"""What is sent: prompts of known length, the same in every run with one seed; and the bytes of each request's body.

Lengths of prompts count words that most vocabularies hold as one token. Knows JSON and OpenAI's fields; no sockets.
"""

import json
import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

# Common words, which most vocabularies have as one token together with the space before them.
COMMON = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so said what up its about than into them
can only other time new some could these two may first then do any like my now over such our man me even most made after
also did many off before must well back through years much where your way down should because long
"""
WORDS = COMMON.split()

Endpoint = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Between low and high tokens, both included, each as likely as any other."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """ "128" or "64-512". Raises ValueError."""
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]):
            raise ValueError(text)
        return cls(int(found[1]), int(found[2] or found[1]))

    def draw(self, chance: random.Random) -> int:
        """One of them."""
        return chance.randint(self.low, self.high)


@dataclass(frozen=True)
class Workload:
    """Requests by number. The first shared_prefix words of every prompt are the same.

    ignore_eos: ask for answers of full length, which not every server knows how to give.
    """

    prompt: Lengths
    output: Lengths
    shared_prefix: int = 0
    endpoint: Endpoint = "completions"
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int = 0

    @property
    def path(self) -> str:
        """Where it is sent."""
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    def lengths(self, number: int) -> tuple[int, int]:
        """Words of request number's prompt, and the tokens that it asks for."""
        chance = random.Random(f"{self.seed} lengths {number}")
        return self.prompt.draw(chance), self.output.draw(chance)

    def text(self, number: int) -> str:
        """Request number's prompt."""
        return self._shared + self._own(number)

    def body(self, number: int, model: str) -> tuple[bytes, bytes]:
        """Request number's JSON in two parts: what all requests begin with, which is one object, and the rest.

        So a thousand long bodies that share their prefix take the memory of one.
        """
        fields: dict[str, Any] = {"max_tokens": self.lengths(number)[1], "temperature": self.temperature}
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
        fields |= {"ignore_eos": True} if self.ignore_eos else {}
        quote = '"}], ' if self.endpoint == "chat" else '", '
        return self._beginning(model), f"{self._own(number)}{quote}{json.dumps(fields)[1:]}".encode()

    @cached_property
    def _shared(self) -> str:
        return " ".join(random.Random(f"{self.seed} shared").choices(WORDS, k=self.shared_prefix))

    def _own(self, number: int) -> str:
        """What follows the shared words. Words need no escapes in JSON."""
        length = max(self.lengths(number)[0] - self.shared_prefix, 1 - bool(self.shared_prefix))
        words = random.Random(f"{self.seed} {number}").choices(WORDS, k=length)
        return " ".join([""] * bool(self.shared_prefix and words) + words)

    @cached_property
    def _beginnings(self) -> dict[str, bytes]:
        return {}

    def _beginning(self, model: str) -> bytes:
        if model not in self._beginnings:
            opened = '"messages": [{"role": "user", "content": "' if self.endpoint == "chat" else '"prompt": "'
            self._beginnings[model] = f'{{"model": {json.dumps(model)}, {opened}{self._shared}'.encode()
        return self._beginnings[model]
