"""All answers to one HTTP request for text, growing event by event, and what the figures are told about them.

Chat and completions share it. Knows the engine's face; knows no HTTP, no JSON and no words.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy

from model.tokenizer.base import Tokenizer
from server.api.account import Generated
from server.api.choices import Choice, Delta
from server.api.jobs import Job
from server.api.running import Submission
from server.engine.detokenizer import Revealed
from server.engine.request import FinishReason, TokenEvent, TokenLogprob
from server.engine.stops import StopMatcher
from server.metrics import Endpoint, Metrics, Outcome

WORST_FIRST = ("deadline", "length", "stop_string", "stop_token")


class Answer:
    """The choices of `job`, with the text, tokens and logprobs that came so far.

    Whoever makes one calls `close` once, however it ends.
    """

    def __init__(
        self,
        job: Job,
        submission: Submission,
        tokenizer: Tokenizer,
        metrics: Metrics,
        endpoint: Endpoint,
        *,
        arrived: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.submission = submission
        stops = StopMatcher(job.stops, include=job.include_stop)  # its tables are built once, and shared by the copies
        calling = job.calling
        pieces = Revealed(tokenizer, calling.reveal) if calling and calling.reveal else tokenizer
        by_token = job.shown.tokens
        self.choices = [
            Choice(request, pieces, copy(stops), calling.parser(request) if calling else None, by_token=by_token)
            for request in job.requests
        ]
        self._index = {request.id: index for index, request in enumerate(job.requests)}
        self._metrics = metrics
        self.endpoint = endpoint
        self._arrived = arrived
        self._clock = clock
        self._latest: dict[int, float] = {}  # when each choice last got a token
        self._cached: dict[int, int] = {}  # cached tokens of each prompt that was computed
        self._begun: set[int] = set()  # choices that have a token or ended without one
        self._first_token_s: float | None = None
        self._undelivered = 0
        self._scores: list[list[TokenLogprob]] = [[] for _ in range(job.num_prompts)]
        self._held: list[tuple[int, Delta]] = []  # until the prompts are scored
        self._done: dict[int, int] = {}  # of each prompt, how many tokens are computed or cached
        self._news: dict[int, dict[str, object]] = {}  # of prompts, not told yet

    @property
    def complete(self) -> bool:
        """Every choice has ended as it should."""
        return all(choice.finish for choice in self.choices)

    def take(self, events: Sequence[TokenEvent]) -> list[tuple[int, Delta]]:
        """What these events add, by choice. Raises ServiceError when one of the choices failed.

        A choice that a stop string ended is cancelled in the engine. Where prompts are scored, everything waits until
        they are: their scores come first.
        """
        for event in events:
            index = self._index[event.request_id]
            self._scores[index // self.job.choices_per_prompt] += event.prompt_logprobs
            if self.job.include_progress:
                self._note_progress(index, event)
            if event.tokens or event.finish:
                self._held.append((index, self._take(event)))
        if not self._prompts_scored():
            return []
        taken, self._held = self._held, []
        return taken

    def _prompts_scored(self) -> bool:
        """Whether all the scores have come that will."""
        if self.job.shown.scored is None:
            return True
        firsts = range(0, len(self.choices), self.job.choices_per_prompt)
        return all(
            self.choices[first].finish or len(scores) == len(self.job.requests[first].prompt) - 1
            for first, scores in zip(firsts, self._scores, strict=True)
        )

    def _note_progress(self, index: int, event: TokenEvent) -> None:
        prompt_id, total = index // self.job.choices_per_prompt, len(self.job.requests[index].prompt)
        if not self._done.get(prompt_id, 0) < event.prompt_done < total or self.choices[index].num_tokens:
            return
        self._done[prompt_id] = event.prompt_done
        done: dict[str, object] = {"processed": event.prompt_done, "cached": event.cached_tokens}
        self._news[prompt_id] = {"prompt": prompt_id, "total": total} | done

    @property
    def has_progress(self) -> bool:
        """There is news of how far prompts are."""
        return bool(self._news)

    def take_progress(self) -> list[dict[str, object]]:
        """How far prompts are that got further since the last call and are not done: one entry each."""
        news, self._news = self._news, {}
        return list(news.values())

    def shown(self) -> list[int]:
        """The choices that are shown, in order: all, or of each prompt the likeliest per token, best first."""
        each, most = self.job.choices_per_prompt, self.job.num_shown
        numbers = list(range(len(self.choices)))
        if most is None:
            return numbers
        groups = [numbers[first : first + each] for first in range(0, len(numbers), each)]
        ranked = [sorted(group, key=lambda number: -self.choices[number].mean_logprob) for group in groups]
        return [number for group in ranked for number in group[:most]]

    def prompt(self, number: int) -> tuple[tuple[int, ...], Sequence[TokenLogprob]]:
        """The prompt's ids of a choice, and the scores of those after the first, if they were asked for."""
        return self.job.requests[number].prompt, self._scores[number // self.job.choices_per_prompt]

    def report(self) -> dict[str, object]:
        """How it came about. Times are the longest of any choice, in milliseconds; how it ended is the worst of all."""
        events = self._last_events()
        ends = [choice.ended_by for choice in self.choices]
        return {
            "queue_ms": _ms(event.queue_seconds for event in events),
            "prompt_ms": _ms(event.prompt_seconds for event in events),
            "decode_ms": _ms(event.decode_seconds for event in events),
            "cached_tokens": self.cached_tokens,
            "preemptions": sum(event.preemptions for event in events),
            "seed": self.job.seed,
            "ended_by": next((end for end in WORST_FIRST if end in ends), ""),
        }

    def _take(self, event: TokenEvent) -> Delta:
        index = self._index[event.request_id]
        choice, before = self.choices[index], self.choices[index].num_tokens
        delta = choice.push(event)
        added = choice.num_tokens - before
        self._undelivered += added
        self._metrics.discarded(len(event.tokens) - added)
        self._note_prompt(index, event)
        if added:
            self._observe(index, added)
        if delta.finish is not None:
            self._metrics.choice_finished("length" if delta.finish == "length" else "stop")
            if event.finish is None:
                self.submission.cancel(event.request_id)
        return delta

    def _note_prompt(self, index: int, event: TokenEvent) -> None:
        """A choice's first token, or its end without any, says what became of its prompt."""
        if index in self._begun:
            return
        self._begun.add(index)
        self._metrics.admitted(event.queue_seconds)
        prompt_id = index // self.job.choices_per_prompt
        its = self.job.shown.scored is None or index % self.job.choices_per_prompt == 0  # else another computes it
        if its and prompt_id not in self._cached:
            self._cached[prompt_id] = event.cached_tokens
            num_tokens = len(self.job.requests[index].prompt)
            self._metrics.prompt_answered(prompt_tokens=num_tokens, cached_tokens=event.cached_tokens)

    def _observe(self, index: int, added: int) -> None:
        now = self._clock()
        if index in self._latest:
            self._metrics.next_tokens(added, now - self._latest[index])
        if not self._latest:
            self._first_token_s = now - self._arrived
            self._metrics.first_token(self._first_token_s)
        self._latest[index] = now

    def deliver(self) -> None:
        """What was taken goes to the user now."""
        self._metrics.delivered(self._undelivered)
        self._undelivered = 0

    @property
    def prompt_tokens(self) -> int:
        """A prompt counts once, however many choices it has."""
        return sum(len(request.prompt) for request in self.job.requests[:: self.job.choices_per_prompt])

    @property
    def cached_tokens(self) -> int:
        """Of the prompts' tokens, those that the prefix cache had."""
        return sum(self._cached.values())

    @property
    def generation_tokens(self) -> int:
        """Of all choices, so far."""
        return sum(choice.num_tokens for choice in self.choices)

    def usage(self) -> dict[str, object]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.generation_tokens,
            "total_tokens": self.prompt_tokens + self.generation_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def account(self, model: str) -> Generated:
        """For the log and for traces."""
        params, events = self.job.requests[0].params, self._last_events()
        return Generated(
            answer_id=self.job.id,
            model=model,
            stream=self.job.stream,
            num_choices=len(self.choices),
            max_tokens=self.job.requests[0].max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=self.job.seed,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.generation_tokens,
            queue_s=max((event.queue_seconds for event in events), default=None),
            prompt_s=max((event.prompt_seconds for event in events), default=None),
            first_token_s=self._first_token_s,
            decode_s=max((event.decode_seconds for event in events), default=None),
            finish_reasons=tuple(choice.finish or "error" for choice in self.choices),
        )

    def _last_events(self) -> list[TokenEvent]:
        return [choice.last_event for choice in self.choices if choice.last_event is not None]

    def close(self, outcome: Outcome) -> None:
        """Nothing more will be taken: stop what still runs, and count how it ended."""
        self.submission.cancel()
        self._metrics.discarded(self._undelivered)
        unfinished: FinishReason = "cancelled" if outcome == "cancelled" else "error"
        for choice in self.choices:
            if choice.finish is None:
                self._metrics.choice_finished(unfinished)
        if outcome == "ok":
            self._count_answer()
        self._metrics.request_finished(self.endpoint, outcome, seconds=self._clock() - self._arrived)

    def _count_answer(self) -> None:
        events = self._last_events()
        self._metrics.answered(
            prompt_tokens=self.prompt_tokens,
            generation_tokens=self.generation_tokens,
            prompt_seconds=max((event.prompt_seconds for event in events), default=0.0),
            decode_seconds=max((event.decode_seconds for event in events), default=0.0),
        )


def _ms(seconds: Iterable[float]) -> float:
    return round(1000 * max(seconds, default=0.0), 3)
