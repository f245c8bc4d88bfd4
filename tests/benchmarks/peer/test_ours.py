"""kvell in its own process: rates come from whole runs, on a tiny model."""

import json
from pathlib import Path

import pytest

from benchmarks.peer import ours
from benchmarks.peer.ours import arrivals, decode_rate, first_token_seconds, open_engine, run_all
from model.checkpoint.source import open_checkpoint
from model.sampling_params import SamplingParams
from model.tokenizer.open import open_tokenizer
from server.bench.workload import Lengths, Workload
from server.engine.engine import Engine
from server.engine.request import Request
from tests.helpers.tiny_model_dir import make_model_dir


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("ours") / "model")


@pytest.fixture(scope="module")
def engine(model: Path) -> Engine:
    return open_engine(model, 1)


def test_decoding_leaves_nothing_running(engine: Engine) -> None:
    assert decode_rate(engine, [(1, 2, 3), (4, 5)], 6) > 0
    assert not engine.has_work


def test_long_and_short_prompts_decode_together(engine: Engine) -> None:
    """The short one must not end while the long one is still on its prompt."""
    assert decode_rate(engine, [(7,), tuple(range(200)) * 4], 5) > 0


def test_a_prompt_ends_with_its_first_token(engine: Engine) -> None:
    assert first_token_seconds(engine, tuple(range(100))) > 0
    assert not engine.has_work


def test_arrivals_run_to_the_last_token(engine: Engine) -> None:
    greedy = SamplingParams(temperature=0.0)
    seconds, firsts = run_all(engine, [Request("a", (1, 2), 3, greedy), Request("b", (3, 4), 9, greedy)])
    assert set(firsts) == {"a", "b"}
    assert max(firsts.values()) < seconds


def test_a_command_prints_one_line_of_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrivals(model, clients=2, input_tokens=9, output_tokens=3, threads=1)
    figures = json.loads(capsys.readouterr().out)
    assert figures["tok_s"] > 0
    assert figures["first_token_s"] > 0


def test_arrivals_are_those_of_the_load_generator(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    monkeypatch.setattr(ours, "run_all", lambda engine, requests: (seen.extend(requests), (1.0, {"0": 0.5}))[1])
    arrivals(model, clients=2, input_tokens=9, output_tokens=3, seed=4, threads=1)
    tokenizer = open_tokenizer(open_checkpoint(model))
    words = [Workload(Lengths(9, 9), Lengths(3, 3), seed=4).text(number) for number in range(2)]
    assert [request.prompt for request in seen[-2:]] == [tuple(tokenizer.encode(each, add_bos=True)) for each in words]
    assert [request.max_tokens for request in seen[-2:]] == [3, 3]
