"""Contests: every setting is tried once, the best goes on, and rounds alternate."""

import math
from collections.abc import Callable, Mapping

import pytest

from benchmarks.peer.contests import Contender, Contest, Figures, MeasureFailed, Record, compete, group_of, steps


class Track:
    """Contenders that write down when they ran, and whose figures are fixed."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def contender(self, peer: str, setting: str, *rates: float) -> Contender:
        values = iter(rates)

        def measure() -> Figures:
            self.ran.append(f"{peer} {setting}".strip())
            return {"tok_s": next(values)}

        return Contender(peer, setting, measure)

    def failing(self, peer: str, setting: str, why: str) -> Contender:
        def measure() -> Figures:
            self.ran.append(f"{peer} {setting}")
            raise MeasureFailed(why)

        return Contender(peer, setting, measure)


@pytest.fixture
def track() -> Track:
    return Track()


def run(contest: Contest, record: Record, runs: int) -> list[str]:
    return list(compete(contest, record, runs=runs))


def test_settings_are_tried_once_and_only_the_best_goes_on_in_turns(track: Track) -> None:
    contest = Contest(
        "decode",
        "group",
        "tok_s",
        track.contender("kvell", "", 100, 110),
        (
            track.contender("llama", "a", 10),
            track.contender("llama", "b", 30, 31, 29),
            track.contender("ov", "c", 20),
        ),
        (track.contender("ceiling", "", 200, 210),),
    )
    record = Record("kvell", "tok_s")
    assert steps(contest, record, runs=2) == 9
    said = run(contest, record, 2)
    assert track.ran == ["llama a", "llama b", "ov c", "kvell", "llama b", "ceiling", "kvell", "llama b", "ceiling"]
    assert len(said) == 9
    assert said[0] == "try llama a"
    assert said[-1] == "ceiling, run 2 of 2"
    assert record.best == "llama b"
    assert record.tries["llama b"] == {"tok_s": 30}
    assert record.values("llama b", "tok_s") == [31, 29], "a try is no round"
    assert record.median("kvell", "tok_s") == 105


def test_a_later_call_adds_rounds_and_tries_nothing_again(track: Track) -> None:
    contest = Contest(
        "decode", "g", "tok_s", track.contender("kvell", "", 1, 2, 3), (track.contender("llama", "a", 5, 6, 7, 8),)
    )
    record = Record("kvell", "tok_s")
    run(contest, record, 1)
    again = Record.from_json(record.to_json())
    assert steps(contest, again, runs=2) == 4
    run(contest, again, 2)
    assert again.values("kvell", "tok_s") == [1, 2, 3]
    assert again.values("llama a", "tok_s") == [6, 7, 8]


def test_one_that_fails_is_out_and_the_others_go_on(track: Track) -> None:
    contest = Contest(
        "decode",
        "g",
        "tok_s",
        track.contender("kvell", "", 9, 9),
        (track.failing("llama", "a", "no such file"), track.contender("ov", "b", 4, 4, 4)),
    )
    record = Record("kvell", "tok_s")
    run(contest, record, 2)
    assert record.failures == {"llama a": "no such file"}
    assert track.ran.count("llama a") == 1
    assert record.best == "ov b"


def test_our_own_failure_is_recorded_once(track: Track) -> None:
    contest = Contest("decode", "g", "tok_s", track.failing("kvell", "x", "broken"), (), ())
    record = Record("kvell x", "tok_s")
    run(contest, record, 3)
    assert track.ran == ["kvell x"]
    assert record.failures == {"kvell x": "broken"}
    assert math.isnan(record.median("kvell x", "tok_s"))


def test_the_best_peer_goes_by_the_median_of_its_rounds() -> None:
    record = Record("kvell", "tok_s", tries={"a": {"tok_s": 50}, "b": {"tok_s": 40}})
    assert record.best == "a"
    record.rounds = {"a": [{"tok_s": 10.0}], "b": [{"tok_s": 30.0}, {"tok_s": 20.0}, {"tok_s": 25.0}]}
    assert record.best == "b"
    assert Record("kvell", "tok_s").best is None


def test_figures_that_a_round_lacks_are_left_out() -> None:
    rounds: Mapping[str, list[dict[str, float]]] = {"kvell": [{"tok_s": 1.0}, {"tok_s": 2.0, "first_token_s": 7.0}]}
    record = Record("kvell", "tok_s", rounds=dict(rounds))
    assert record.values("kvell", "first_token_s") == [7.0]
    assert record.values("nobody", "tok_s") == []


def test_a_median_is_not_moved_by_one_odd_round() -> None:
    record = Record("kvell", "tok_s", rounds={"kvell": [{"tok_s": 1.0}, {"tok_s": 90.0}, {"tok_s": 2.0}]})
    assert record.median("kvell", "tok_s") == 2.0


def contest(name: str, group: str, measure: Callable[[], Figures] = dict) -> Contest:
    return Contest(name, group, "tok_s", Contender("kvell", "", measure))


def test_contests_are_named_by_group_or_by_id() -> None:
    all_of_them = [contest("http-1", "http"), contest("http-16", "http"), contest("start", "start")]
    assert group_of(all_of_them, []) == all_of_them
    assert [each.id for each in group_of(all_of_them, ["http"])] == ["http-1", "http-16"]
    assert [each.id for each in group_of(all_of_them, ["start", "http-1"])] == ["http-1", "start"]
    with pytest.raises(ValueError, match=r"http-2; known: http, http-1, http-16, start"):
        group_of(all_of_them, ["http-2", "start"])
