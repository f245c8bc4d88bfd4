"""What a peer that is a Python library is asked to do. Its script runs in its own interpreter, so nothing is imported
here that a peer might not have.

    python -m benchmarks.peer.in_PEER '{"model": ..., "sequences": 16, "prompt": 128, "new": 64, ...}'

The script prints one line of JSON: tok_s, tokens per second once every sequence has its first token, and prompt_tok_s.
"""

import json
import random
import sys
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """So many sequences with prompts of `prompt` random tokens, `new` tokens each after the first one."""

    model: str
    sequences: int
    prompt: int
    new: int
    threads: int
    vocab_size: int
    setting: str = ""

    def to_argument(self) -> str:
        """`read_job` reads it."""
        return json.dumps(asdict(self))

    def prompts(self) -> list[list[int]]:
        """The same in every process; no special tokens, which stand at the start of the vocabularies used here."""
        chance = random.Random(f"{self.sequences} {self.prompt}")
        return [[chance.randrange(300, self.vocab_size) for _ in range(self.prompt)] for _ in range(self.sequences)]

    def report(self, *, prompt_seconds: float, new_seconds: float) -> None:
        """Print the figures. new_seconds is ignored where no tokens after the first were asked for."""
        figures = {"prompt_tok_s": self.sequences * self.prompt / prompt_seconds}
        if self.new:
            figures["tok_s"] = self.sequences * self.new / new_seconds
        print(json.dumps(figures), flush=True)


def read_job() -> Job:
    """The job on the command line."""
    return Job(**json.loads(sys.argv[1]))
