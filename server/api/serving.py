"""What the endpoints work with: the served model's text side, the engine's face, the figures. Made by `server.app`.

Knows no HTTP. The protocols say what the API needs of `server.engine.service`, so that tests can put a fake there.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from model.tokenizer.base import Tokenizer
from model.tokenizer.chat import ChatTemplate
from server.api.bodies import Bodies
from server.api.running import Running, Submission
from server.engine.admission import Visitor
from server.engine.errors import EngineUnavailable, ModelNotFound
from server.engine.request import GroupPicture, Request
from server.engine.wire import Ready
from server.metrics import Metrics


class Service(Protocol):
    """The engine as the API sees it."""

    @property
    def state(self) -> str: ...

    @property
    def ready(self) -> bool: ...

    @property
    def reason(self) -> str:
        """Why it is not ready, in one line."""
        ...

    @property
    def info(self) -> Ready | None: ...

    @property
    def picture(self) -> Sequence[GroupPicture]:
        """The blocks per KV group, as fresh as `watch` asked for."""
        ...

    def watch(self, interval_ms: int) -> None:
        """Keep `picture` fresh; 0: no longer."""
        ...

    def knock(self, visitor: Visitor) -> None:
        """Raises what `submit` would raise for even the smallest request."""
        ...

    def submit(self, requests: Sequence[Request], visitor: Visitor) -> Submission:
        """Raises EngineUnavailable, Draining or TooBusy at once."""
        ...


STATED_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 2**31),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What counts when a request leaves a field out: the checkpoint's generation_config, else OpenAI's default."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, generation_config: Mapping[str, Any]) -> "SamplingDefaults":
        """Only numbers that a request could carry too; a checkpoint's null or nonsense is like leaving it out."""
        good: dict[str, Any] = {}
        for name, (low, high) in STATED_RANGES.items():
            value = generation_config.get(name)
            if isinstance(value, int | float) and low <= value <= high:
                good[name] = value
        return cls(**good)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the checkpoint's files are. digest: 64 hex digits, `Checkpoint.digest`. stored_bytes: by type ("Q4_K")."""

    digest: str = ""
    format: str = ""
    stored_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The text side of the one model that this server serves. created is in seconds since 1970.

    trusts_templates: whether a request may bring its own chat template.
    """

    id: str
    created: int
    tokenizer: Tokenizer
    template: ChatTemplate | None
    eos_ids: frozenset[int]
    defaults: SamplingDefaults
    facts: ModelFacts = ModelFacts()
    trusts_templates: bool = False

    def check_name(self, name: str | None) -> None:
        """Raises ModelNotFound for any name but this model's. None is this one: there is no other."""
        if name is not None and name != self.id:
            message = f"The model {name[:200]!r} does not exist; this server has {self.id!r}"
            raise ModelNotFound(message, param="model")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one sequence can get. context_tokens: prompt and answer together, as the model goes.

    cache_tokens: as the KV cache goes. max_sequences: prompts times n of one request.
    """

    context_tokens: int
    cache_tokens: int
    max_sequences: int

    @property
    def tokens(self) -> int:
        """The tighter of the two."""
        return min(self.context_tokens, self.cache_tokens)


@dataclass(frozen=True, slots=True)
class Serving:
    """Everything an endpoint needs.

    share_prefixes: between the owners of different keys. default_timeout_s: deadline of requests that bring none.
    log_prompts: prompts and answers are part of a request's line in the log.
    worker: where big inputs are prepared, one after the other. A tokeniser needs some 200 bytes per token while it
    works, so a handful of clients with bodies of 8 MB each would otherwise cost gigabytes.
    """

    model: ServedModel
    service: Service
    metrics: Metrics
    max_sequences: int
    ping_s: float
    share_prefixes: bool = False
    default_timeout_s: float | None = None
    log_prompts: bool = False
    worker: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "big inputs"))
    running: Running = field(default_factory=Running)
    bodies: Bodies = field(default_factory=Bodies)

    def limits(self) -> Limits:
        """Of the engine as it runs now. Raises EngineUnavailable while it is still loading."""
        info = self.service.info
        if info is None:
            raise EngineUnavailable(self.service.reason, retry_after=1)
        return Limits(info.max_model_len, info.cache_tokens, self.max_sequences)
