"""All answers to one HTTP request for text, growing event by event, and what the figures are told about them.

Chat and completions share it. Knows the engine's face; knows no HTTP, no JSON and no words.
"""

import time
from collections.abc import Callable, Sequence
from copy import copy

from model.tokenizer.base import Tokenizer
from server.api.choices import Choice, Delta
from server.api.jobs import Job
from server.api.running import Submission
from server.engine.request import FinishReason, TokenEvent
from server.engine.stops import StopMatcher
from server.metrics import Endpoint, Metrics, Outcome


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
        self.choices = [Choice(request, tokenizer, copy(stops)) for request in job.requests]
        self._index = {request.id: index for index, request in enumerate(job.requests)}
        self._metrics = metrics
        self._endpoint = endpoint
        self._arrived = arrived
        self._clock = clock
        self._latest: dict[int, float] = {}  # when each choice last got a token
        self._cached: dict[int, int] = {}  # cached tokens of each prompt that was computed
        self._begun: set[int] = set()  # choices that have a token or ended without one
        self._undelivered = 0

    @property
    def complete(self) -> bool:
        """Every choice has ended as it should."""
        return all(choice.finish for choice in self.choices)

    def take(self, events: Sequence[TokenEvent]) -> list[tuple[int, Delta]]:
        """What these events add, by choice. Raises ServiceError when one of the choices failed.

        A choice that a stop string ended is cancelled in the engine.
        """
        return [(self._index[event.request_id], self._take(event)) for event in events]

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
            self._metrics.choice_finished(delta.finish)
            if event.finish is None:
                self.submission.cancel(event.request_id)
        return delta

    def _note_prompt(self, index: int, event: TokenEvent) -> None:
        """A choice's first token, or its end without any, says what became of its prompt."""
        if index in self._begun or not (event.tokens or event.finish):
            return
        self._begun.add(index)
        self._metrics.admitted(event.queue_seconds)
        prompt_id = index // self.job.choices_per_prompt
        if prompt_id not in self._cached:
            self._cached[prompt_id] = event.cached_tokens
            num_tokens = len(self.job.requests[index].prompt)
            self._metrics.prompt_answered(prompt_tokens=num_tokens, cached_tokens=event.cached_tokens)

    def _observe(self, index: int, added: int) -> None:
        now = self._clock()
        if index in self._latest:
            self._metrics.next_tokens(added, now - self._latest[index])
        if not self._latest:
            self._metrics.first_token(now - self._arrived)
        self._latest[index] = now

    def deliver(self) -> None:
        """What was taken goes to the user now."""
        self._metrics.delivered(self._undelivered)
        self._undelivered = 0

    def usage(self) -> dict[str, object]:
        """OpenAI's usage object. A prompt counts once, however many choices it has."""
        prompt = sum(len(request.prompt) for request in self.job.requests[:: self.job.choices_per_prompt])
        completion = sum(choice.num_tokens for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached.values())},
        }

    def summary(self) -> str:
        """For the log."""
        usage = self.usage()
        return f"{usage['prompt_tokens']}+{usage['completion_tokens']} tokens"

    def close(self, outcome: Outcome) -> None:
        """Nothing more will be taken: stop what still runs, and count how it ended."""
        self.submission.cancel()
        self._metrics.discarded(self._undelivered)
        unfinished: FinishReason = "cancelled" if outcome == "cancelled" else "error"
        for choice in self.choices:
            if choice.finish is None:
                self._metrics.choice_finished(unfinished)
        self._metrics.request_finished(self._endpoint, outcome, seconds=self._clock() - self._arrived)
