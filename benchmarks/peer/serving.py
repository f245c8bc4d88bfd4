"""The contests over HTTP: bursts of clients, and how soon a server that is started answers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from benchmarks.peer.contests import Contender, Contest, Figures
from benchmarks.peer.llama import Llama
from benchmarks.peer.servers import Command, Fleet, Server, burst

SLOTS, SLOT_CONTEXT = 16, 1024
START_SECONDS = 120.0
SEEDS_APART = 1000
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that wait for work leave the core to the clients
# llama-server's settings: name -> flash attention, environment
LLAMA_SETTINGS: Mapping[str, tuple[bool, Mapping[str, str]]] = {
    "Q8_0, flash attention on": (True, {}),
    "Q8_0, flash attention on, passive waits": (True, PASSIVE),
    "Q8_0, flash attention off": (False, {}),
}


@dataclass(frozen=True, slots=True)
class Burst:
    """So many clients at once; each asks for `new` tokens after `words`, the first `shared` of which all have."""

    name: str
    clients: int
    words: int
    new: int
    shared: int = 0

    @property
    def options(self) -> tuple[str, ...]:
        """For benchmarks/peer/ours.py."""
        return (
            *("--clients", str(self.clients), "--input-tokens", str(self.words)),
            *("--output-tokens", str(self.new), "--shared-prefix-tokens", str(self.shared)),
        )


BURSTS = (
    Burst("http-1", 1, 128, 128),
    Burst("http-16", 16, 128, 128),
    Burst("http-shared", 16, 512 + 128, 32, shared=512),
)


class Line(Protocol):
    """What is asked of `benchmarks.peer.lineup.Lineup`."""

    @property
    def fleet(self) -> Fleet: ...

    @property
    def llama(self) -> Llama: ...

    @property
    def model(self) -> Path: ...

    def our_server(self) -> Command:
        """kvell with its default settings."""
        ...

    def llama_model(self) -> Path:
        """In Q8_0."""
        ...

    def ours(self, what: str, model: Callable[[], Path], *options: str) -> Contender:
        """kvell's engine in a process of its own."""
        ...


def llama_server(line: Line, setting: str) -> Command:
    """With 16 slots, each long enough for any burst."""
    flash, env = LLAMA_SETTINGS[setting]
    start = partial(line.llama.server, line.llama_model(), slots=SLOTS, context=SLOT_CONTEXT, flash=flash)
    return Command(lambda port: start(port=port), "/health", env)


def bursts(line: Line) -> Iterator[Contest]:
    """Tokens per second and time to first token of each burst; of sixteen clients also what the engine alone does."""
    for number, each in enumerate(BURSTS):
        ask = partial(_asker, line, each, number * SEEDS_APART)
        theirs = [
            Contender("llama-server", setting, ask(setting, partial(llama_server, line, setting)))
            for setting in (LLAMA_SETTINGS if line.llama.serves else ())
        ]
        ours = Contender("kvell", "", ask("kvell", line.our_server))
        alone = Contender("engine without HTTP", "", _alone(line, each, number * SEEDS_APART))
        yield Contest(each.name, "http", "tok_s", ours, tuple(theirs), (alone,) if each.name == "http-16" else ())


def _asker(line: Line, each: Burst, seed: int, name: str, command: Callable[[], Command]) -> Callable[[], Figures]:
    """New prompts each time, so that nothing comes from a prefix cache; of all servers the same ones."""
    seeds = count(seed)

    def ask() -> Figures:
        url = line.fleet.url(name, command())
        sizes = {"clients": each.clients, "words": each.words, "new": each.new, "shared": each.shared}
        return burst(url, **sizes, seed=next(seeds))

    return ask


def _alone(line: Line, each: Burst, seed: int) -> Callable[[], Figures]:
    """The very arrivals that kvell's server gets in the same round."""
    seeds = count(seed)
    return lambda: line.ours("arrivals", lambda: line.model, *each.options, "--seed", str(next(seeds))).measure()


def start(line: Line) -> Contest:
    """From starting the process to the first streamed token, with the model on the disk."""

    def run(command: Callable[[], Command]) -> Figures:
        with Server(command()) as server:
            seconds = server.first_token_seconds(START_SECONDS)
        return {"first_token_s": seconds, "starts_per_s": 1 / seconds}

    setting = next(iter(LLAMA_SETTINGS))
    theirs = Contender("llama-server", setting, partial(run, partial(llama_server, line, setting)))
    ours = Contender("kvell", "", partial(run, line.our_server))
    return Contest("start", "start", "starts_per_s", ours, (theirs,) if line.llama.serves else ())
