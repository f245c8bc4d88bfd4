"""Watches one engine process for as long as it lives: takes its messages, and notices when it makes no progress.

Knows no requests; what a step brought is handed on.
"""

import asyncio
from collections.abc import Callable

from server.engine.process import EngineGone, EngineProcess
from server.engine.watchdog import Verdict, Watchdog
from server.engine.wire import Begun, Ping, Pong, Step, ToApi


class Vigil:
    """Use: `await until_lost(process)`, one process after the other.

    has_work: whether the engine has anything to do. on_responsive hears whether it answers, whenever that is looked at.
    """

    def __init__(
        self,
        watchdog: Watchdog,
        *,
        has_work: Callable[[], bool],
        on_begun: Callable[[Begun], None],
        on_step: Callable[[Step], None],
        on_responsive: Callable[[bool], None],
        clock: Callable[[], float],
    ) -> None:
        self.watchdog = watchdog
        self._has_work = has_work
        self._on_begun = on_begun
        self._on_step = on_step
        self._on_responsive = on_responsive
        self._clock = clock
        self._last_pong = 0

    async def until_lost(self, process: EngineProcess) -> str:
        """Until the engine dies or hangs; says what happened."""
        tasks = [asyncio.create_task(self._read(process)), asyncio.create_task(self._guard(process))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, process: EngineProcess) -> str:
        while True:
            try:
                message = await process.receive()
            except EngineGone as gone:
                return f"is gone ({gone})"
            if isinstance(message, Pong):
                self._last_pong = message.number
            if self._is_progress(message):
                self.watchdog.progress()
                self._on_responsive(True)
            if isinstance(message, Begun):
                self._on_begun(message)
            elif isinstance(message, Step):
                self._on_step(message)

    def _is_progress(self, message: ToApi) -> bool:
        """With work in flight only work done counts; an engine that turns in circles answers pings, too."""
        if not self._has_work():
            return True
        if not isinstance(message, Step):
            return False
        return bool(message.events) or message.stats.prompt_tokens + message.stats.decode_tokens > 0

    async def _guard(self, process: EngineProcess) -> str:
        number = self._last_pong = 0
        while True:
            began = self._clock()
            await asyncio.sleep(self.watchdog.tick_s)
            verdict = self.watchdog.tick(self._clock() - began)
            if verdict is Verdict.HUNG:
                return f"made no progress for {self.watchdog.silence_s:.0f} s"
            self._on_responsive(verdict is Verdict.FINE)
            if self._last_pong == number:
                number += 1
                process.send(Ping(number))
