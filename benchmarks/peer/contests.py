"""Who is measured against whom, in which order: A B A B, so that what the machine does in between strikes all alike.

A contest measures one thing of kvell and of its peers. Of the peers, every setting is tried once; only the best goes
on into the rounds: each peer has its best setting without an hour of repeats. Knows no model and no peer.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = Mapping[str, float]


class MeasureFailed(Exception):
    """A contender could not be measured; the message is for people."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One program with one setting. measure runs it once and returns its figures by name; raises MeasureFailed."""

    peer: str
    setting: str
    measure: Callable[[], Figures]

    @property
    def name(self) -> str:
        """Unique within a contest."""
        return f"{self.peer} {self.setting}".strip()


@dataclass(frozen=True, slots=True)
class Contest:
    """ours and the references run in every round, and of theirs the one with the highest figure `deciding`.

    references are what ours is a share of: a ceiling of the machine, or the same work without something.
    """

    id: str
    group: str
    deciding: str
    ours: Contender
    theirs: tuple[Contender, ...] = ()
    references: tuple[Contender, ...] = ()


@dataclass(slots=True)
class Record:
    """What was measured in one contest. By contender's name: tries (one each), rounds, and what went wrong."""

    ours: str
    deciding: str
    tries: dict[str, dict[str, float]] = field(default_factory=dict)
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The peer that did best: by its rounds where it has any, else by its try. None without any."""
        of_rounds = {name: self.median(name, self.deciding) for name in self.tries if self.rounds.get(name)}
        if of_rounds:
            return max(of_rounds, key=lambda name: of_rounds[name])
        return max(self.tries, key=lambda name: self.tries[name][self.deciding], default=None)

    def values(self, name: str, figure: str) -> list[float]:
        """The figure of all rounds."""
        return [each[figure] for each in self.rounds.get(name, ()) if figure in each]

    def median(self, name: str, figure: str) -> float:
        """Not a number where nothing was measured."""
        values = self.values(name, figure)
        return statistics.median(values) if values else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it."""
        return {name: getattr(self, name) for name in ("ours", "deciding", "tries", "rounds", "failures")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """Raises TypeError for other data."""
        return cls(**data)


def compete(contest: Contest, record: Record, *, runs: int) -> Iterator[str]:
    """Measure, and add what comes to the record. Yields what is about to run, for whoever shows progress.

    A contender that failed is not asked again; without a try of its own, a peer gets one first.
    """
    for contender in contest.theirs:
        if contender.name not in record.tries and contender.name not in record.failures:
            yield f"try {contender.name}"
            if figures := _measured(contender, record):
                record.tries[contender.name] = figures
    best = record.best
    rivals = [each for each in contest.theirs if each.name == best]
    for number in range(runs):
        for contender in (contest.ours, *rivals, *contest.references):
            if contender.name not in record.failures:
                yield f"{contender.name}, run {number + 1} of {runs}"
                if figures := _measured(contender, record):
                    record.rounds.setdefault(contender.name, []).append(figures)


def steps(contest: Contest, record: Record, *, runs: int) -> int:
    """How many measurements `compete` will make, if none fails."""
    untried = sum(each.name not in record.tries and each.name not in record.failures for each in contest.theirs)
    return untried + runs * (1 + bool(contest.theirs) + len(contest.references))


def _measured(contender: Contender, record: Record) -> dict[str, float] | None:
    try:
        return dict(contender.measure())
    except MeasureFailed as failure:
        record.failures[contender.name] = str(failure)
        return None


def group_of(contests: Sequence[Contest], wanted: Sequence[str]) -> list[Contest]:
    """The contests whose group or id is wanted; all if none is named. Raises ValueError for an unknown name."""
    known = {each.id for each in contests} | {each.group for each in contests}
    if unknown := sorted(set(wanted) - known):
        raise ValueError(f"{', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return [each for each in contests if not wanted or {each.id, each.group} & set(wanted)]
