"""One consumer's stream of events, without any process."""

import asyncio
from collections.abc import Sequence

import pytest

from server.engine.errors import ClientTooSlow, EngineUnavailable
from server.engine.request import TokenEvent, TokenLogprob
from server.engine.submission import JOIN_EVERY, MAX_BACKLOG, Submission


class Drops:
    """What the submission told its owner."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], int]] = []
        self.answered: list[bool] = []

    def __call__(self, request_ids: Sequence[str], unread_tokens: int, *, answered: bool) -> None:
        self.calls.append((tuple(request_ids), unread_tokens))
        self.answered.append(answered)


@pytest.fixture
def drops() -> Drops:
    return Drops()


@pytest.fixture
def submission(drops: Drops) -> Submission:
    return Submission(["a", "b"], drops)


async def test_one_event_is_handed_on_as_it_is(submission: Submission) -> None:
    event = TokenEvent("a", (1, 2), cached_tokens=3)
    submission.push(event)
    assert (await submission.batch())[0] is event


async def test_a_backlog_is_joined_per_request_in_order(submission: Submission) -> None:
    first, second = TokenLogprob(-1.0), TokenLogprob(-2.0)
    submission.push(TokenEvent("b", (7,), (first,), cached_tokens=16, queue_seconds=0.5))
    submission.push(TokenEvent("a", (1,)))
    submission.push(TokenEvent("b", (8, 9), (second, second), preemptions=1, cached_tokens=32, queue_seconds=0.75))
    submission.push(
        TokenEvent("b", finish="error", error="broken", preemptions=1, cached_tokens=32, queue_seconds=0.75)
    )
    assert await submission.batch() == [
        TokenEvent("b", (7, 8, 9), (first, second, second), "error", "broken", 32, 1, 0.75),
        TokenEvent("a", (1,)),
    ]


async def test_a_prompt_s_scores_are_joined_too_and_totals_are_the_latest(submission: Submission) -> None:
    entries = [TokenLogprob(-float(number)) for number in range(3)]
    submission.push(TokenEvent("a", prompt_logprobs=(entries[0],), prompt_seconds=1.0))
    submission.push(TokenEvent("a", (1,), prompt_logprobs=(entries[1], entries[2]), prompt_seconds=2.0))
    submission.push(TokenEvent("a", finish="length", ended_by="deadline", prompt_seconds=2.0, decode_seconds=3.0))
    (joined,) = await submission.batch()
    assert joined.prompt_logprobs == tuple(entries)
    assert (joined.tokens, joined.ended_by) == ((1,), "deadline")
    assert (joined.prompt_seconds, joined.decode_seconds) == (2.0, 3.0)


async def test_a_long_backlog_is_few_events_and_loses_nothing(submission: Submission) -> None:
    for number in range(1000):
        submission.push(TokenEvent("a", (number,), (TokenLogprob(-float(number)),)))
    assert len(submission._pending["a"]) < JOIN_EVERY
    (joined,) = await submission.batch()
    assert joined.tokens == tuple(range(1000))
    assert [entry.logprob for entry in joined.logprobs] == [-float(number) for number in range(1000)]


async def test_who_falls_too_far_behind_is_given_up_and_told_so_behind_what_there_is(drops: Drops) -> None:
    submission = Submission(["a", "b", "done"], drops)
    submission.push(TokenEvent("done", (1,), finish="stop"))
    submission.push(TokenEvent("a", (1,)))
    await submission.batch()
    entry = TokenLogprob(-1.0, tuple(range(15)), (-1.0,) * 15)  # 16 with its token
    for _ in range(MAX_BACKLOG // 16):
        submission.push(TokenEvent("a", (1,), (entry,)))
    assert drops.calls == []
    submission.push(TokenEvent("b", (1,), (entry,), finish="length"))
    assert drops.calls == [(("a",), 0)], "b has ended"
    assert sum(len(event.tokens) for event in await submission.batch()) == MAX_BACKLOG // 16 + 1
    with pytest.raises(ClientTooSlow, match=f"{MAX_BACKLOG + 16} tokens.*limit is {MAX_BACKLOG}"):
        await submission.batch()


async def test_who_reads_is_never_given_up_however_much_it_is(submission: Submission, drops: Drops) -> None:
    for _ in range(3):
        submission.push(TokenEvent("a", (1,) * MAX_BACKLOG))
        await submission.batch()
    assert drops.calls == []


async def test_it_ends_when_every_request_has_finished(submission: Submission) -> None:
    submission.push(TokenEvent("a", (1,), finish="stop"))
    submission.push(TokenEvent("b", (2,)))
    seen = []
    async for event in submission:
        seen.append((event.request_id, event.finish))
        if event.request_id == "b" and event.finish is None:
            submission.push(TokenEvent("b", finish="length"))
    assert seen == [("a", "stop"), ("b", None), ("b", "length")]


async def test_waiting_ends_with_the_next_event(submission: Submission) -> None:
    waiting = asyncio.create_task(submission.batch())
    await asyncio.sleep(0)
    assert not waiting.done()
    submission.push(TokenEvent("a", (1,)))
    assert (await waiting)[0].tokens == (1,)


async def test_waiting_ends_with_a_cancel_from_elsewhere(submission: Submission) -> None:
    waiting = asyncio.create_task(submission.batch())
    await asyncio.sleep(0)
    submission.cancel()
    assert await waiting == ()


async def test_a_failure_comes_after_what_was_there_and_stays(submission: Submission) -> None:
    submission.push(TokenEvent("a", (1,)))
    submission.fail(EngineUnavailable("gone"))
    assert len(await submission.batch()) == 1
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="gone"):
            await submission.batch()


async def test_cancelling_reports_what_was_never_read(submission: Submission, drops: Drops) -> None:
    submission.push(TokenEvent("a", (1, 2)))
    submission.push(TokenEvent("a", (3,)))
    submission.push(TokenEvent("b", (4,)))
    submission.cancel("a")
    assert drops.calls == [(("a",), 3)]
    assert [event.request_id for event in await submission.batch()] == ["b"]


async def test_cancelling_all_names_only_the_unfinished(submission: Submission, drops: Drops) -> None:
    submission.push(TokenEvent("a", (1,), finish="stop"))
    await submission.batch()
    submission.close()
    submission.close()
    assert drops.calls == [(("b",), 0)]


async def test_leaving_after_the_end_cancels_nothing(submission: Submission, drops: Drops) -> None:
    with submission:
        for name in "ab":
            submission.push(TokenEvent(name, finish="stop"))
        assert [event.request_id async for event in submission] == ["a", "b"]
    assert drops.calls == []


async def test_a_submission_of_nothing_is_over_at_once(drops: Drops) -> None:
    assert await Submission([], drops).batch() == ()


def test_it_is_admitted_with_its_first_event(submission: Submission) -> None:
    assert not submission.admitted
    submission.push(TokenEvent("b"))
    assert submission.admitted
