"""The engine as the API process sees it: always there to be asked, ready or not. Runs on one event loop; no torch.

Starts the engine process, hands it requests, hands out its events, notices when it dies or makes no progress, fails
what was in flight at once and starts another. Knows no HTTP and no text.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from server.config import ServerConfig
from server.engine.admission import ANYBODY, Admission, Visitor
from server.engine.dispatch import Dispatch
from server.engine.errors import Draining, EngineUnavailable, StartupFailed
from server.engine.forecast import Forecast
from server.engine.observer import Observer
from server.engine.process import ENGINE_COMMAND, EngineProcess, launch
from server.engine.request import GroupPicture, Request
from server.engine.submission import Submission
from server.engine.vigil import Vigil
from server.engine.watchdog import Watchdog, backoff_s
from server.engine.wire import Cancel, Progress, Ready, Step, Submit, Watch

State = Literal["starting", "ready", "hung", "restarting", "draining", "failed", "stopped"]

START_PATIENCE = 4  # loading may be silent for so many engine timeouts: importing torch from a cold disk is slow
MAX_START_FAILURES = 5
STOP_SECONDS, EXIT_SECONDS = 5.0, 0.2  # the latter between its end of file and its end, for the exit status
QUICK_DEATH_SECONDS = 60.0

logger = logging.getLogger(__name__)


class EngineService:
    """Use: `await start()`, `submit(...)`, and at the end `begin_drain()`, `await drained(...)`, `await stop()`.

    Everything but `engine_ready` and the like is reported to metrics by the API: what users got, and refusals.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        metrics: Observer,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        command: Sequence[str] = ENGINE_COMMAND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info: Ready | None = None
        self.picture: tuple[GroupPicture, ...] = ()  # of the blocks, as last seen by whoever watches
        self._reason = "the engine is loading the model"
        self._config = config
        self._metrics = metrics
        self._on_progress = on_progress
        self._command = command
        self._state: State = "starting"
        self._draining = False
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._first: asyncio.Future[Ready] | None = None  # the outcome of the first start
        admission = Admission(
            running_limit=config.engine.max_num_seqs,
            waiting_requests=config.max_waiting_requests,
            waiting_tokens=config.max_waiting_tokens,
            queue_s=config.max_queue_s,
            clock=clock,
        )
        self._dispatch = Dispatch(admission, send=self._send, on_discard=metrics.discarded, clock=clock)
        self._vigil = Vigil(
            Watchdog(config.engine_timeout_s),
            has_work=lambda: self._dispatch.occupied,
            on_begun=self._dispatch.begun,
            on_step=self._note_step,
            on_responsive=self._set_responsive,
            clock=clock,
        )
        self._watch_ms = 0
        self._disk_warning = ""  # what was said of the blocks on disk
        self._forecast = Forecast(clock)

    @property
    def state(self) -> State:
        """Draining once begin_drain was called, whatever the engine does."""
        return "draining" if self._draining and self._state != "stopped" else self._state

    @property
    def reason(self) -> str:
        """Why it is not ready, one line."""
        return "the server is shutting down" if self.state == "draining" else self._reason

    @property
    def ready(self) -> bool:
        """The engine makes progress and new work is welcome."""
        return self.state == "ready"

    @property
    def engine_pid(self) -> int | None:
        """The engine process, for logs and tests; None while there is none."""
        return self._process.pid if self._process else None

    @property
    def num_in_flight(self) -> int:
        """Sequences that were submitted and have not ended."""
        return len(self._dispatch)

    # requests

    def knock(self, visitor: Visitor) -> None:
        """Raises what `submit` would raise for even the smallest request."""
        self._open()
        self._dispatch.admission.knock(visitor)

    def submit(self, requests: Sequence[Request], visitor: Visitor = ANYBODY) -> Submission:
        """Hand requests to the engine, to be admitted together, in order.

        Raises EngineUnavailable, Draining or TooBusy at once, InvalidValue for more than can ever be held, and
        CondemnedRequest for what the engine died of before.
        """
        self._open()
        submission = self._dispatch.submit(requests, visitor)
        self._metrics.tokens_waiting(self._dispatch.admission.waiting_tokens)
        return submission

    def _open(self) -> None:
        if self._draining or self._state == "stopped":
            raise Draining("the server is shutting down")
        if self._state != "ready" or self._process is None:
            raise EngineUnavailable(self.reason, retry_after=self._ready_in())

    def watch(self, interval_ms: int) -> None:
        """Keep `picture` so fresh from now on; 0: nobody looks, and it costs nothing."""
        self._watch_ms = interval_ms
        if self._process is not None and self.info is not None:  # else it is told when it is ready
            self._process.send(Watch(interval_ms))

    def _ready_in(self) -> int | None:
        """Seconds until the engine should be ready, at least 1; None when it won't be."""
        if self._state == "failed":
            return None
        hung = self._vigil.watchdog.timeout_s - self._vigil.watchdog.silence_s if self._state == "hung" else None
        return self._forecast.remaining(hung_for_another_s=hung)

    def _send(self, message: Submit | Cancel) -> None:
        if self._process is not None:
            self._process.send(message)

    # the way up and the way down

    async def start(self) -> Ready:
        """Start the first engine, once. Raises StartupFailed; there is no second try for the first."""
        self._first = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(self._first))
        return await asyncio.shield(self._first)

    def begin_drain(self) -> None:
        """Take no new work from now on. What runs goes on."""
        self._draining = True

    async def drained(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; after timeout_s end the rest with Draining. Whether all ended by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._dispatch.idle.wait()
        return not self._dispatch.fail_all(Draining("the server shut down before the answer was complete"))

    async def stop(self) -> None:
        """End the engine process and everything that waits for it."""
        self.begin_drain()
        self._state = "stopped"
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        if self._first is not None and not self._first.done():
            self._first.set_exception(StartupFailed("the server was stopped"))
            self._first.exception()  # seen, even when nobody waits for it any more
        self._dispatch.fail_all(Draining("the server has shut down"))
        self._metrics.engine_lost()
        await self._end_process(STOP_SECONDS)

    async def _end_process(self, grace_s: float) -> str:
        if self._process is None:
            return "was not there"
        how = await self._process.end(grace_s=grace_s)
        self._process = None
        return how

    async def _launch(self, *, restarted: bool) -> None:
        """Start an engine process, until it is ready. Raises StartupFailed."""
        began = self._forecast.starts()
        patience_s = START_PATIENCE * self._config.engine_timeout_s
        self._process, self.info = await launch(
            self._command, self._config.engine, patience_s=patience_s, on_progress=self._note_progress
        )
        self._forecast.started(began)
        self._state, self._reason = "ready", "ready"
        self._vigil.watchdog.progress()
        self._metrics.engine_ready(self.info, restarted=restarted)
        self.picture = ()
        self.watch(self._watch_ms)
        self._dispatch.resume()

    def _note_progress(self, progress: Progress) -> None:
        self._reason = f"the engine is loading the model ({progress.fraction:.0%})"
        self._on_progress(progress)

    # while an engine runs

    async def _supervise(self, first: asyncio.Future[Ready]) -> None:
        """Watch one engine after the other, until there is no hope or no need for a next one."""
        try:
            await self._launch(restarted=False)
            assert self.info is not None
            first.set_result(self.info)
            await self._keep_running()
        except Exception as error:
            self._state, self._reason = "failed", str(error)
            if not first.done():
                first.set_exception(error)
                return
            logger.exception("the engine's supervisor failed")
            await self._lose(f"has no supervisor any more: {error!r}")
            self._dispatch.fail_all(EngineUnavailable(self.reason))
            self._state = "failed"

    async def _keep_running(self) -> None:
        quick_deaths = 0
        while True:
            assert self._process is not None
            reason = await self._vigil.until_lost(self._process)
            quick = self._forecast.up_s < QUICK_DEATH_SECONDS
            quick_deaths = quick_deaths + 1 if quick else 0
            await self._lose(reason)
            if self._draining or not await self._relaunch(quick_deaths):
                self._dispatch.fail_all(EngineUnavailable(self.reason))
                return

    def _note_step(self, step: Step) -> None:
        self._dispatch.take(step)
        waiting = step.stats.waiting + self._dispatch.num_outside
        self._metrics.step(msgspec.structs.replace(step.stats, waiting=waiting))
        if step.stats.disk and step.stats.disk.warning not in ("", self._disk_warning):
            self._disk_warning = step.stats.disk.warning
            logger.warning(self._disk_warning)
        self.picture = step.picture or self.picture
        self._metrics.tokens_waiting(self._dispatch.admission.waiting_tokens)

    def _set_responsive(self, responsive: bool) -> None:
        if self._state not in ("ready", "hung") or (self._state == "ready") == responsive:
            return
        self._state = "ready" if responsive else "hung"
        self._reason = (
            "ready" if responsive else f"the engine made no progress for {self._vigil.watchdog.silence_s:.0f} s"
        )
        self._metrics.engine_responsive(responsive)
        logger.warning("the engine answers again" if responsive else self.reason)

    async def _lose(self, reason: str) -> None:
        """The engine is gone or given up: tell everyone at once, then clear it away."""
        self._state = "restarting"
        self._reason = f"the engine {reason}; a new one is being started"
        self._forecast.starts()
        self._metrics.engine_lost()
        message = f"the engine failed while it worked on this request: it {reason}"
        lost = self._dispatch.lose(EngineUnavailable(message, retry_after=self._ready_in()))
        how = await self._end_process(EXIT_SECONDS)
        logger.error("the engine %s; it %s; %d sequences were in it", reason, how, lost)

    async def _relaunch(self, quick_deaths: int) -> bool:
        """Start the next engine, with growing pauses; whether it worked."""
        for attempt in range(MAX_START_FAILURES):
            pause = backoff_s(quick_deaths + attempt)
            self._forecast.starts(pause)
            await asyncio.sleep(pause)
            try:
                await self._launch(restarted=True)
            except StartupFailed as error:
                logger.error("the engine can't be started again: %s", error)
                self._reason = f"the engine can't be started again: {error}"
            else:
                logger.warning("a new engine is ready after %.1f s", self._forecast.load_s)
                return True
        self._state = "failed"
        return False
