"""Who is suspected, who is condemned, and for how long that is remembered."""

from dataclasses import replace

import msgspec
import pytest

from model.sampling_params import SamplingParams
from server.engine.request import Constraint, Request
from server.engine.suspects import Suspects

REQUEST = Request("a", (1, 2, 3), 16, SamplingParams(temperature=0.5, seed=7, logit_bias={3: 1.0, 4: 2.0}))


def other(**changes: object) -> Request:
    return msgspec.structs.replace(REQUEST, **changes)


def test_nobody_is_suspected_at_first() -> None:
    suspects = Suspects()
    assert not suspects.suspects(REQUEST)
    assert not suspects.condemns(REQUEST)


def test_suspicion_ends_with_an_answer() -> None:
    suspects = Suspects()
    suspects.suspect([REQUEST])
    assert suspects.suspects(REQUEST)
    assert not suspects.condemns(REQUEST)
    suspects.clear(REQUEST)
    assert not suspects.suspects(REQUEST)


def test_the_condemned_are_no_suspects_any_more_and_stay_condemned() -> None:
    suspects = Suspects()
    suspects.suspect([REQUEST])
    suspects.condemn(REQUEST)
    assert suspects.condemns(REQUEST)
    assert not suspects.suspects(REQUEST)
    suspects.clear(REQUEST)
    assert suspects.condemns(REQUEST)


@pytest.mark.parametrize(
    "same",
    [
        other(id="b", owner="someone", namespace="n", cache_salt="s", priority=3, deadline=5.0, waiting_since=1.0),
        other(params=replace(REQUEST.params, seed=8, choice=2)),
        other(params=replace(REQUEST.params, logit_bias={4: 2.0, 3: 1.0})),
    ],
)
def test_whoever_asks_the_same_is_the_same(same: Request) -> None:
    suspects = Suspects()
    suspects.suspect([REQUEST])
    assert suspects.suspects(same)


@pytest.mark.parametrize(
    "innocent",
    [
        other(prompt=(1, 2, 4)),
        other(max_tokens=17),
        other(params=replace(REQUEST.params, temperature=0.6)),
        other(params=replace(REQUEST.params, logit_bias={3: 1.5, 4: 2.0})),
        other(params=replace(REQUEST.params, logit_bias={})),
        other(constraint=Constraint("regex", "a*")),
        other(prompt_logprobs=0),
    ],
)
def test_whoever_asks_anything_else_is_someone_else(innocent: Request) -> None:
    suspects = Suspects()
    suspects.suspect([REQUEST])
    suspects.condemn(other(prompt=(9,)))
    assert not suspects.suspects(innocent)
    assert not suspects.condemns(innocent)


def test_the_oldest_are_forgotten() -> None:
    suspects = Suspects(most=3)
    requests = [other(prompt=(number,)) for number in range(5)]
    suspects.suspect(requests[:3])
    suspects.suspect([requests[0]])  # once more: now it is the youngest
    suspects.suspect(requests[3:])
    assert [suspects.suspects(each) for each in requests] == [True, False, False, True, True]
    for each in requests:
        suspects.condemn(each)
    assert [suspects.condemns(each) for each in requests] == [False, False, True, True, True]
