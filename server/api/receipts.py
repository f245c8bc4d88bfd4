"""Receipts: what was computed, by what and for whom asked, so that `POST /v1/replay` can compute it again.

A receipt holds the request as it was read, with everything resolved that a default or chance decided, the prompts'
ids, each choice's limit, and a digest of the choices. Nothing in it is trusted when it comes back.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from server.api.answer import Answer
from server.api.serving import Serving

VERSION = 1
# Says nothing about the choices, or is in the receipt by another name.
LEFT_OUT = (
    "model",
    "stream",
    "stream_options",
    "timeout_ms",
    "user",
    "metadata",
    "kvell_receipt",
    "cache_salt",
    "priority",
)
RESOLVED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")


def identity(serving: Serving) -> dict[str, str]:
    """What must be the same for the same bits: the model, and what computes it."""
    info = serving.service.info
    assert info is not None, "an answer came from an engine that is not there"
    return {
        "model_digest": serving.model.facts.digest,
        "backend": info.backend,
        "kernels": info.kernels,
        "kernels_version": info.kernels_version,
        "quantization": info.quantization,
        "dtype": info.dtype,
        "kv_cache_dtype": info.kv_cache_dtype,
    }


def make_receipt(answer: Answer, computed_by: Mapping[str, str], choices: Sequence[object]) -> dict[str, object]:
    """The receipt of a complete answer. choices: as they are whole."""
    job = answer.job
    params = job.requests[0].params
    request = {name: value for name, value in job.fields.items() if name not in LEFT_OUT and value is not None}
    request |= {name: getattr(params, name) for name in RESOLVED}
    return {
        "version": VERSION,
        **computed_by,
        "endpoint": answer.endpoint,
        "request": request,
        "prompt_token_ids": [each.prompt for each in job.requests[:: job.choices_per_prompt]],
        "max_tokens": [_limit(answer, index) for index in range(len(job.requests))],
        "choices_sha256": digest_of(choices),
    }


def digest_of(choices: Sequence[object]) -> str:
    """Of their JSON, as it is sent."""
    return hashlib.sha256(msgspec.json.encode(choices)).hexdigest()


def _limit(answer: Answer, index: int) -> int:
    """A deadline cuts by the clock; the same cut comes again by length."""
    choice = answer.choices[index]
    return choice.num_tokens if choice.ended_by == "deadline" else answer.job.requests[index].max_tokens
