"""Which requests may be to blame for the loss of an engine, and which ones are. Remembers digests, never prompts.

API process. Knows no engine: it is told who ran when one was lost, and who was answered.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from server.engine.request import Request

MOST_REMEMBERED = 10_000  # of suspects, and of the condemned; beyond it the oldest is forgotten


class Suspects:
    """Who is among others when an engine is lost is suspected; who is suspected and then alone is condemned.

    Two equal requests are one: the seed, which the server draws where the client gives none, and the choice's number
    don't count.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._suspected: dict[bytes, None] = {}  # oldest first
        self._condemned: dict[bytes, None] = {}

    def suspects(self, request: Request) -> bool:
        """Whether it must run alone."""
        return bool(self._suspected) and _digest(request) in self._suspected

    def condemns(self, request: Request) -> bool:
        """Whether it must not run at all."""
        return bool(self._condemned) and _digest(request) in self._condemned

    def suspect(self, requests: Iterable[Request]) -> None:
        """An engine was lost while these ran together."""
        for request in requests:
            self._remember(self._suspected, _digest(request))

    def condemn(self, request: Request) -> None:
        """An engine was lost while this one, a suspect, ran alone."""
        self.clear(request)
        self._remember(self._condemned, _digest(request))

    def clear(self, request: Request) -> None:
        """It was answered, and the engine stands."""
        if self._suspected:
            self._suspected.pop(_digest(request), None)

    def _remember(self, digests: dict[bytes, None], digest: bytes) -> None:
        digests.pop(digest, None)  # to the end
        digests[digest] = None
        if len(digests) > self._most:
            del digests[next(iter(digests))]


def _digest(request: Request) -> bytes:
    """The same for equal prompts with equal parameters."""
    params = replace(request.params, seed=0, choice=0, logit_bias={})
    bias = sorted(request.params.logit_bias.items())
    what = request.prompt, request.max_tokens, params, bias, request.constraint, request.prompt_logprobs
    return hashlib.sha256(msgspec.msgpack.encode(what)).digest()
