"""Composes the API process: the served model's text side, the engine's service, the routes; runs them until the end.

Never imports torch. Knows signals and sockets; the command line is `server.cli`'s.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from model.checkpoint.source import Checkpoint, open_checkpoint
from model.tokenizer.open import open_chat_template, open_tokenizer
from server.api.routes import create_app
from server.api.serving import ModelFacts, SamplingDefaults, ServedModel, Serving
from server.config import ServerConfig
from server.connections import Connection, allow_many_files
from server.engine.service import EngineService
from server.engine.wire import Progress, Ready
from server.keys import KeyFileError, KeyRing
from server.metrics import Metrics
from server.tracing import Tracing
from server.version import kvell_version

MAX_SEQUENCES = 512  # of one request: prompts times n
CLOSE_SECONDS = 5  # for the last bytes of answers that are complete
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections, so that they never post into a closed one

OnProgress = Callable[[Progress], None]
OnReady = Callable[[Ready, ServedModel], None]

logger = logging.getLogger("kvell")


def open_model(path: Path, model_id: str, generation: Mapping[str, float]) -> ServedModel:
    """The text side of the checkpoint at `path`. Raises CheckpointError.

    generation: recommended sampling, where the checkpoint's own generation_config says nothing.
    """
    checkpoint = open_checkpoint(path)
    tokenizer = open_tokenizer(checkpoint)
    return ServedModel(
        id=model_id,
        created=int(time.time()),
        tokenizer=tokenizer,
        template=open_chat_template(checkpoint, tokenizer),
        eos_ids=checkpoint.eos_ids | tokenizer.eos_ids,
        defaults=SamplingDefaults.of({**generation, **checkpoint.generation_config}),
        facts=facts_of(checkpoint),
    )


def facts_of(checkpoint: Checkpoint) -> ModelFacts:
    """What /v1/models tells of the files."""
    stored: dict[str, int] = {}
    for name in checkpoint.tensor_names:
        kind = checkpoint.stored_type(name)
        stored[kind] = stored.get(kind, 0) + checkpoint.stored_bytes(name)
    return ModelFacts(digest=checkpoint.digest(), format=checkpoint.format, stored_bytes=stored)


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: it would close the listening socket before the streams have ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Running:
    """A server from its first signal of life to its last. Use: `await Running(...).run(...)`, once.

    The first SIGTERM or SIGINT drains: new work and /ready get 503 while running answers finish, for at most the drain
    timeout. The second one ends the process at once.
    """

    def __init__(
        self,
        config: ServerConfig,
        listener: socket.socket,
        *,
        model_id: str,
        keys: KeyRing,
        generation: Mapping[str, float],
        tracing: Tracing | None = None,
    ) -> None:
        self._config = config
        self._listener = listener
        self._model_id = model_id
        self._keys = keys
        self._generation = generation
        self._tracing = tracing
        self._metrics = Metrics(version=kvell_version())
        if config.metrics_compat == "vllm":
            self._metrics.add_vllm_names(model_id, block_size=config.engine.block_size)
        self._draining: asyncio.Task[None] | None = None
        self._http: _Server | None = None

    async def run(self, *, on_progress: OnProgress, on_ready: OnReady) -> None:
        """Serve until a signal says otherwise. Raises CheckpointError or StartupFailed when it can't get ready."""
        allow_many_files()
        service = EngineService(self._config, metrics=self._metrics, on_progress=on_progress)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number, service)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
        starting = asyncio.create_task(service.start())
        try:
            # the tokenizer loads while the engine's process loads the weights
            model = await asyncio.to_thread(
                open_model, Path(self._config.engine.model_path), self._model_id, self._generation
            )
            model = replace(model, trusts_templates=self._config.trust_request_chat_template)
            if self._draining is None:
                await self._serve(self._make_app(service, model), starting, lambda info: on_ready(info, model))
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await service.stop()
            if self._tracing is not None:
                self._tracing.close()

    def _make_app(self, service: EngineService, model: ServedModel) -> ASGIApp:
        capacity = self._config.engine.max_num_seqs + self._config.max_waiting_requests
        serving = Serving(
            model=model,
            service=service,
            metrics=self._metrics,
            max_sequences=min(MAX_SEQUENCES, capacity),
            ping_s=self._config.sse_ping_s,
            share_prefixes=self._config.share_prefixes,
            default_timeout_s=self._config.default_timeout_s,
            log_prompts=self._config.log_prompts,
        )
        config = self._config
        return create_app(
            serving,
            keys=self._keys,
            open_metrics=config.open_metrics,
            origins=config.cors_origins,
            trace=self._tracing,
        )

    async def _serve(self, app: ASGIApp, starting: asyncio.Task[Ready], on_ready: Callable[[Ready], None]) -> None:
        """Answer from now on, with 503 until the engine is ready; return when uvicorn has been told to exit."""
        self._http = _make_server(app, self._config)
        serving = asyncio.create_task(self._http.serve(sockets=[self._listener]))
        try:
            await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and self._draining is None:
                on_ready(starting.result())
        finally:
            if starting.done() and (starting.cancelled() or starting.exception()):
                self._http.should_exit = True
            await serving

    def _on_signal(self, number: int, service: EngineService) -> None:
        if self._draining is not None:
            logger.warning("second signal: ending at once")
            logging.shutdown()
            os._exit(128 + number)  # the engine sees the end of its socket and follows
        self._draining = asyncio.create_task(self._drain(service))

    def _on_hangup(self) -> None:
        """SIGHUP: the keys' file has changed."""
        try:
            self._keys.reload()
        except KeyFileError as error:
            logger.error("the keys stay as they were: %s", error)
        else:
            logger.info("read the keys again: %d", len(self._keys))

    async def _drain(self, service: EngineService) -> None:
        service.begin_drain()
        if service.num_in_flight:
            limit = self._config.drain_timeout_s
            logger.info("shutting down when %d sequences have ended, in %.0f s at most", service.num_in_flight, limit)
        if not await service.drained(self._config.drain_timeout_s):
            logger.warning("the drain timeout passed; what still ran was cut short")
        if self._http is not None:
            self._http.should_exit = True


def _make_server(app: ASGIApp, settings: ServerConfig) -> _Server:
    config = uvicorn.Config(
        app,
        # on h11: httptools reads headers without end, and loses the body beside an "Upgrade: h2c" of Java's client
        http=Connection,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ssl_certfile=settings.tls_certfile,
        ssl_keyfile=settings.tls_keyfile,
    )
    return _Server(config)
