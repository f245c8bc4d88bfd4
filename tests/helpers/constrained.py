"""A tiny engine that serves constraints, driven to the end of some requests in this process."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.checkpoint.source import open_checkpoint
from model.tokenizer.base import Tokenizer
from model.tokenizer.open import open_tokenizer
from server.config import EngineConfig
from server.engine.compose import compose
from server.engine.engine import Engine
from server.engine.request import Request
from tests.helpers.tiny_model_dir import make_model_dir
from tests.helpers.worlds import Answer


@dataclass
class ConstrainedWorld:
    """The engine, its tokenizer, and a way to wait for grammars."""

    engine: Engine
    tokenizer: Tokenizer
    ready: threading.Event

    def run(self, requests: Sequence[Request]) -> dict[str, Answer]:
        """Submit all at once and play to the end."""
        self.engine.submit(requests)
        answers = {request.id: Answer() for request in requests}
        while any(answer.finish is None for answer in answers.values()):
            if not self.engine.has_work:
                assert self.ready.wait(30), "no grammar got ready"
            self.ready.clear()
            for event in self.engine.step().events:
                answer = answers[event.request_id]
                answer.tokens += event.tokens
                answer.logprobs += event.logprobs
                answer.finish, answer.error, answer.refused = event.finish, event.error, event.refused
                answer.preemptions = event.preemptions
        return answers

    def text(self, answer: Answer) -> str:
        """What it reads as, its stop token left out."""
        tokens = answer.tokens[:-1] if answer.finish == "stop" else answer.tokens
        return b"".join(map(self.tokenizer.piece, tokens)).decode("utf-8", "replace")


def make_constrained_world(path: Path, **settings: Any) -> ConstrainedWorld:
    """Over a tiny random model written to `path`; settings are those of `EngineConfig`."""
    fixed = {"kv_cache_bytes": 4 * 2**20, "max_model_len": 1024, "threads": 1, "backend": "torch"} | settings
    model = make_model_dir(path)
    engine, _ = compose(EngineConfig(model_path=str(model), **fixed), lambda what, fraction: None)
    ready = threading.Event()
    engine.on_ready(ready.set)
    return ConstrainedWorld(engine, open_tokenizer(open_checkpoint(model)), ready)
