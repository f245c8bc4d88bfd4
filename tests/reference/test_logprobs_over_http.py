"""Log-probabilities over HTTP equal the float64 log-softmax of transformers' logits: of prompts and of answers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from model.checkpoint.source import open_checkpoint
from tests.helpers.complete import COMPLETE
from tests.helpers.live_server import LiveServer
from tests.helpers.real_models import real_model

pytestmark = [pytest.mark.reference, pytest.mark.slow, pytest.mark.e2e]

MODEL = "smollm2-135m-instruct"
TEXTS = ["The capital of France is", "def fibonacci(n):\n    if n < 2:\n        return n\n", "日本の首都は 🙂 x"]
LONG = "The quick brown fox jumps over the lazy dog. " * 12  # more than a slice of 64 positions


@pytest.fixture(scope="module")
def loading() -> Iterator[LiveServer]:
    """The server, which need not be ready yet."""
    real_model(MODEL)
    options = ("--backend", "torch", "--dtype", "float32", "--kv-cache-memory", "256MiB")
    with LiveServer(MODEL, *options) as live:
        yield live


@pytest.fixture(scope="module")
def original(loading: LiveServer) -> Any:
    """transformers' model with the weights that our reader gives. Its own takes a minute for them; that both read them
    alike is what `test_original_smollm2` shows."""
    checkpoint = open_checkpoint(real_model(MODEL))
    config = transformers.AutoConfig.for_model(**checkpoint.config)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    weights = {name: torch.from_numpy(checkpoint.read(name)) for name in checkpoint.tensor_names}
    missing, unexpected = made.load_state_dict(weights, strict=False)
    assert (set(missing), unexpected) in ((set(), []), ({"lm_head.weight"}, []))
    made.tie_weights()
    return made


@pytest.fixture(scope="module")
def server(loading: LiveServer, original: Any) -> LiveServer:
    return loading.wait_ready()


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


@pytest.mark.parametrize("first", [False, True] if COMPLETE else [False])
@pytest.mark.parametrize("text", [*TEXTS, LONG], ids=["short", "code", "unicode", "long"])
def test_prompt_and_output_cold_and_warm(server: LiveServer, original: Any, text: str, first: bool) -> None:
    """Cold in one form and warm in the other; first: whether the cold one is streamed."""
    asked = {"max_tokens": 6, "temperature": 0, "logprobs": 5, "return_token_ids": True, "ignore_eos": True}
    asked |= {"prompt": f"{'Streamed' if first else 'Whole'}: {text}"}
    known: dict[tuple[int, ...], torch.Tensor] = {}
    for streamed in (first, not first):
        echoed = choice_of(server, asked | {"echo": True, "prompt_logprobs": 3}, streamed=streamed)
        answer_only = choice_of(server, asked, streamed=streamed)
        ids = echoed["ids"]
        assert answer_only["ids"] == ids
        if tuple(ids) not in known:
            known[tuple(ids)] = expected(original, ids)
        theirs = known[tuple(ids)]
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
