"""Log-probabilities over HTTP equal the float64 log-softmax of transformers' logits: of prompts and of answers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from tests.helpers.live_server import LiveServer
from tests.helpers.real_models import real_model
from tests.helpers.slim_gguf import write_slim

pytestmark = [pytest.mark.reference, pytest.mark.slow, pytest.mark.e2e]

MODEL = "smollm2-135m-instruct"
TEXTS = ["The capital of France is", "def fibonacci(n):\n    if n < 2:\n        return n\n", "日本の首都は 🙂 x"]
LONG = "The quick brown fox jumps over the lazy dog. " * 12  # more than a slice of 64 positions


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    real_model(MODEL)
    options = ("--backend", "torch", "--dtype", "float32", "--kv-cache-memory", "256MiB")
    with LiveServer(MODEL, *options) as live:
        yield live.wait_ready()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = real_model(MODEL)
    slim = write_slim(path, tmp_path_factory.mktemp("gguf") / path.name)
    cls = transformers.AutoModelForCausalLM
    return cls.from_pretrained(slim.parent, gguf_file=slim.name, dtype=torch.float32).eval()


def expected(original: Any, ids: list[int]) -> torch.Tensor:
    """The distributions after each id but the last. (T - 1, V)"""
    with torch.no_grad():
        logits = original(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), -1)[:-1]


def choice_of(server: LiveServer, fields: dict[str, Any], *, streamed: bool) -> dict[str, Any]:
    """The one choice, put together from whatever form it comes in."""
    got = server.request("POST", "/v1/completions", fields | {"stream": streamed})
    assert got.status == 200, got.body
    whole: dict[str, Any] = {"ids": [], "logprobs": {}}
    for body in got.events()[:-1] if streamed else [got.json()]:
        for choice in body["choices"]:
            whole["ids"] += choice.get("prompt_token_ids", []) + choice.get("token_ids", [])
            whole.setdefault("listed", choice.get("prompt_logprobs"))
            for name, values in (choice["logprobs"] or {}).items():
                whole["logprobs"].setdefault(name, []).extend(values)
    return whole


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("text", [*TEXTS, LONG], ids=["short", "code", "unicode", "long"])
def test_prompt_and_output_cold_and_warm(server: LiveServer, original: Any, text: str, streamed: bool) -> None:
    asked = {"max_tokens": 6, "temperature": 0, "logprobs": 5, "return_token_ids": True, "ignore_eos": True}
    asked |= {"prompt": f"{'Streamed' if streamed else 'Whole'}: {text}"}
    for _ in ("cold", "warm"):
        echoed = choice_of(server, asked | {"echo": True, "prompt_logprobs": 3}, streamed=streamed)
        answer_only = choice_of(server, asked, streamed=streamed)
        ids = echoed["ids"]
        assert answer_only["ids"] == ids
        theirs = expected(original, ids)
        scores = torch.tensor(echoed["logprobs"]["token_logprobs"][1:], dtype=torch.float64)
        wanted = theirs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert len(scores) == len(wanted)
        assert (scores - wanted).abs().max() < 1e-3
        assert answer_only["logprobs"]["token_logprobs"] == pytest.approx(scores[-6:].tolist(), abs=1e-4)
        for token, top, row in zip(ids[1:], echoed["logprobs"]["top_logprobs"][1:], theirs, strict=True):
            # by text, so that parts of characters fall together; the best and the token itself are there in any case
            possible = [*row.topk(5).values.tolist(), float(row[token])]
            assert max(top.values()) == pytest.approx(possible[0], abs=1e-3)
            assert all(any(abs(value - each) < 1e-3 for each in possible) for value in top.values())
        for listed, row in zip(echoed["listed"][1:], theirs, strict=False):
            for token, entry in listed.items():
                assert entry["logprob"] == pytest.approx(float(row[int(token)]), abs=1e-3)
