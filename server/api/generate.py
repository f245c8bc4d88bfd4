"""From an HTTP request for text to its answer, in one piece or as a stream. Every endpoint that generates runs here.

Knows when headers may go out and that clients leave; the words of an answer are the endpoint's (`Face`).
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from server.api.account import Account, account_of
from server.api.answer import Answer
from server.api.body import read_body
from server.api.choices import ScoredToken
from server.api.errors import InternalError, json_response
from server.api.guard import NOBODY, owner_of, visitor_of
from server.api.jobs import Job
from server.api.offload import run_sized
from server.api.pieces import readable
from server.api.running import Submission, Ticket
from server.api.serving import Limits, ServedModel, Serving
from server.api.sse import PING, EventStream
from server.api.wording import Face, Writing
from server.engine.admission import Visitor
from server.engine.errors import RequestError, ServiceError
from server.engine.request import Request as TokenRequest
from server.engine.request import TokenEvent
from server.metrics import Endpoint, Outcome

GONE = 499  # nginx's number for a client that left; nobody but the log reads it

logger = logging.getLogger("kvell.api")

# (job id, body, model, limits) -> job; raises RequestError
Prepare = Callable[[str, bytes, ServedModel, Limits], Job]


async def generate(request: Request, serving: Serving, prepare: Prepare, face: Face) -> Response:
    """The answer to one request. Raises RequestError or ServiceError while a real status can still be sent."""
    account = account_of(request)
    arrived, account.endpoint = account.arrived, face.endpoint
    ticket = serving.running.enter(owner_of(request), request.state.request_id)
    try:
        job, submission = await _submit(request, serving, prepare, face.id_prefix, arrived=arrived)
        ticket.hold(submission)
    except ClientDisconnect:
        serving.running.leave(ticket)
        account.outcome = "cancelled"
        serving.metrics.request_finished(face.endpoint, "cancelled")
        return Response(status_code=GONE)
    except BaseException as error:
        serving.running.leave(ticket)
        if isinstance(error, RequestError | ServiceError):
            count_refusal(request, serving, face.endpoint, error)
        raise
    answer = Answer(job, submission, serving.model.tokenizer, serving.metrics, face.endpoint, arrived=arrived)
    run = _Run(answer, face.writer(answer), serving, request, ticket)
    return await (run.streamed() if job.stream else run.whole())


def count_refusal(request: Request, serving: Serving, endpoint: Endpoint, error: RequestError | ServiceError) -> None:
    """Tell the figures and the log that a request ended before any work."""
    outcome: Outcome = "refused" if isinstance(error, RequestError) else "unavailable"
    account = account_of(request)
    account.endpoint, account.outcome, account.error = endpoint, outcome, error.code or ""
    serving.metrics.rejected(error.code)
    serving.metrics.request_finished(endpoint, outcome)


async def _submit(
    request: Request, serving: Serving, prepare: Prepare, prefix: str, *, arrived: float
) -> tuple[Job, Submission]:
    visitor = visitor_of(request)
    serving.service.knock(visitor)  # before the body: whoever is refused anyway need not be read
    job_id = prefix + secrets.token_hex(12)  # not the request's own id, which a client may use twice
    with serving.bodies.hold(request.headers):
        body = await read_body(request)
        job = await run_sized(len(body), lambda: prepare(job_id, body, serving.model, serving.limits()), serving.worker)
    return job, serving.service.submit(_owned(_timed(job, serving, arrived), visitor, serving), visitor)


def _timed(job: Job, serving: Serving, arrived: float) -> Sequence[TokenRequest]:
    """With the moment by which they are to end. The engine reads the same monotonic clock."""
    timeout_s = serving.default_timeout_s if job.timeout_s is None else job.timeout_s
    if timeout_s is None:
        return job.requests
    return [msgspec.structs.replace(each, deadline=arrived + timeout_s) for each in job.requests]


def _owned(requests: Sequence[TokenRequest], visitor: Visitor, serving: Serving) -> Sequence[TokenRequest]:
    """With their owner, for fair shares. With keys, a prefix is shared within one owner's requests only: timing must
    not tell what another asked."""
    if visitor.owner == NOBODY:
        return requests
    namespace = "" if serving.share_prefixes else visitor.owner
    owned = {"owner": visitor.owner, "weight": visitor.weight, "namespace": namespace}
    return [msgspec.structs.replace(each, **owned) for each in requests]


class _Run:
    """One admitted request until its end. From the start on, a client that leaves cancels it, and so may its id."""

    def __init__(self, answer: Answer, writer: Writing, serving: Serving, request: Request, ticket: Ticket) -> None:
        self._answer = answer
        self._writer = writer
        self._ping_s = serving.ping_s
        self._running = serving.running
        self._ticket = ticket
        self._request = request
        self._headers = {"x-kvell-seed": str(answer.job.seed)}
        self._model = serving.model
        self._heard: dict[str, list[int]] | None = {} if serving.log_prompts else None
        self._outcome: Outcome = "error"  # until it is known to be otherwise

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[None, None]:
        """While inside, a client that leaves cancels everything, so that the wait for events ends by itself."""
        watch = asyncio.create_task(self._cancel_when_gone())
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self._outcome = "cancelled"
            raise
        finally:
            watch.cancel()
            self._running.leave(self._ticket)
            self._answer.close(self._outcome)
            self._tell(account_of(self._request))

    def _tell(self, account: Account) -> None:
        """What it came to."""
        account.outcome = self._outcome
        account.generated = generated = self._answer.account(self._model.id)
        if self._heard is not None:
            job, tokenizer = self._answer.job, self._model.tokenizer
            generated.prompts = tuple(
                readable(tokenizer, each.prompt) for each in job.requests[:: job.choices_per_prompt]
            )
            generated.answers = tuple(readable(tokenizer, self._heard.get(each.id, ())) for each in job.requests)

    async def _batch(self) -> Sequence[TokenEvent]:
        events = await self._answer.submission.batch()
        if self._heard is not None:
            for event in events:
                self._heard.setdefault(event.request_id, []).extend(event.tokens)
        return events

    async def _cancel_when_gone(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._answer.submission.cancel()

    async def whole(self) -> Response:
        """The answer in one piece, once it is complete."""
        answer = self._answer
        texts, scored = [""] * len(answer.choices), [list[ScoredToken]() for _ in answer.choices]
        async with self._watched():
            while not answer.complete and (events := await self._batch()):
                for index, delta in answer.take(events):
                    texts[index] += delta.text
                    scored[index] += delta.scored
            if not answer.complete:
                self._outcome = "cancelled"
                self._ticket.check()
                return Response(status_code=GONE)
            answer.deliver()
            self._outcome = "ok"
            return json_response(self._writer.whole(texts, scored), headers=self._headers)

    async def streamed(self) -> Response:
        """The answer as it comes. Waits until headers may go out; what goes wrong before that is raised."""
        blocks = self._blocks()
        try:
            first = await anext(blocks)
        except StopAsyncIteration:
            return Response(status_code=GONE)
        return EventStream(_chain(first, blocks), self._headers)

    async def _blocks(self) -> AsyncGenerator[bytes, None]:
        """One block per step. The first is there with the first token, or as a ping once the engine is at work."""
        answer, begun = self._answer, False
        async with self._watched():
            try:
                while not answer.complete:
                    events = await self._next_events()
                    if events is None:
                        if begun or answer.submission.admitted:
                            begun = True
                            yield PING
                        continue
                    if not events:
                        self._outcome = "cancelled"
                        self._ticket.check()
                        return
                    deltas = answer.take(events)
                    if not deltas and not answer.has_progress:
                        continue  # admitted, and nothing to show yet
                    begun = True
                    answer.deliver()
                    block = self._writer.block(deltas)
                    yield block + self._writer.ending() if answer.complete else block
                self._outcome = "ok"
            except Exception as error:
                if not begun:
                    raise
                yield self._writer.failure(_known(error))

    async def _next_events(self) -> Sequence[TokenEvent] | None:
        """None when the ping interval passed without any; empty when everything was cancelled."""
        try:
            async with asyncio.timeout(self._ping_s):
                return await self._batch()
        except TimeoutError:
            return None


def _known(error: Exception) -> RequestError | ServiceError:
    """What the client of a broken stream is told. A fault in kvell itself goes to the log."""
    if isinstance(error, RequestError | ServiceError):
        return error
    logger.error("a stream failed", exc_info=error)
    return InternalError()


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for block in rest:
            yield block
