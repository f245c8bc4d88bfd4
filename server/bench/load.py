"""When requests are sent: at moments drawn beforehand, whatever the server does (open loop), or by so many clients,
each of which sends its next one when it has its answer (closed loop). Knows time and numbers; no HTTP.
"""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from server.bench.outcome import Outcome

Ask = Callable[[Outcome], Coroutine[Any, Any, Outcome]]


@dataclass(frozen=True, slots=True)
class Shape:
    """How much load: rate requests a second (inf: all at once), or concurrency clients. One of the two is None.

    It ends after num_requests, or when no more may begin after duration_s; one of the two is None.
    come_back: clients that were refused with a time to come back do so, as long as the load lasts. Those of a closed
    loop always do: else they would do nothing but ask again.
    """

    rate: float | None = None
    concurrency: int | None = None
    num_requests: int | None = None
    duration_s: float | None = None
    come_back: bool = False
    seed: int = 0

    def offsets(self) -> Iterator[float]:
        """Of open-loop load: seconds from the beginning to each arrival, a Poisson process."""
        assert self.rate is not None
        chance = random.Random(f"{self.seed} arrivals")
        at = 0.0
        for number in count():
            if number == self.num_requests or (self.duration_s is not None and at > self.duration_s):
                return
            yield at
            at += chance.expovariate(self.rate) if math.isfinite(self.rate) else 0.0


@dataclass(slots=True)
class Run:
    """What a load brought. Times are of the clock's. load_s: how long requests began to be sent."""

    outcomes: list[Outcome] = field(default_factory=list)
    began: float = 0.0
    load_s: float = 0.0


async def run_load(shape: Shape, ask: Ask, clock: Callable[[], float]) -> Run:
    """All of it, to the last answer."""
    run = Run(began=clock())
    if shape.rate is None:
        await _closed(shape, _returning(shape, ask, run, clock), run, clock)
    else:
        await _open(shape, _returning(shape, ask, run, clock), run, clock)
    return run


async def _open(shape: Shape, send: Ask, run: Run, clock: Callable[[], float]) -> None:
    offset = 0.0
    async with asyncio.TaskGroup() as tasks:
        for number, offset in enumerate(shape.offsets()):
            if (pause := run.began + offset - clock()) > 0:
                await asyncio.sleep(pause)
            tasks.create_task(send(Outcome(number, due=run.began + offset)))
        run.load_s = shape.duration_s or offset
    run.load_s = run.load_s or clock() - run.began


async def _closed(shape: Shape, send: Ask, run: Run, clock: Callable[[], float]) -> None:
    assert shape.concurrency is not None
    numbers = iter(count() if shape.num_requests is None else range(shape.num_requests))
    until = run.began + (math.inf if shape.duration_s is None else shape.duration_s)

    async def one_client() -> None:
        for number in takewhile(lambda _: clock() < until, numbers):
            if (await send(Outcome(number, due=clock()))).retry_after_s is not None:
                return  # told to come back after the load's end

    await asyncio.gather(*(one_client() for _ in range(shape.concurrency)))
    run.load_s = clock() - run.began


def _returning(shape: Shape, ask: Ask, run: Run, clock: Callable[[], float]) -> Ask:
    """`ask`, and then again at the time that a refusal told, until it is let in or the load is over."""

    async def send(outcome: Outcome) -> Outcome:
        while True:
            run.outcomes.append(await ask(outcome))
            if not (shape.come_back or shape.concurrency) or outcome.retry_after_s is None:
                return outcome
            told = outcome.ended + outcome.retry_after_s
            if told > run.began + _end_s(shape, run):
                return outcome
            await asyncio.sleep(max(0.0, told - clock()))
            outcome = Outcome(outcome.number, due=told, returned=True)

    return send


def _end_s(shape: Shape, run: Run) -> float:
    """Until when refused ones may come back: the load is given by a duration, or is still going on, or has no end."""
    if shape.duration_s is not None:
        return shape.duration_s
    return run.load_s or math.inf
