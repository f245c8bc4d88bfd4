"""The command on a tiny model: the reference is transformers on the same weights."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result

from benchmarks import perplexity
from benchmarks.perplexity import compare_prompts, greedy, summarise
from tests.helpers.tiny_model_dir import make_model_dir


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("perplexity") / "model")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("In the beginning there was a hat, and then another one. " * 20)
    return path


def run(*options: str) -> Result:
    app = perplexity.typer.Typer()
    app.command()(perplexity.main)
    return CliRunner().invoke(app, list(options))


def figures(result: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_kvell_and_the_reference_agree_on_the_same_weights(model: Path, text: Path) -> None:
    result = run(str(model), "--text", str(text), "--window", "64", "--windows", "5", "--reference", "--threads", "1")
    found = figures(result)
    ours, theirs, excess = found["kvell"], found["theirs"], found["excess"]
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    assert isinstance(excess, dict)
    assert ours["count"] == 5 * 31
    assert theirs["transformers"] == pytest.approx(ours["perplexity"], rel=5e-3)
    assert abs(excess["transformers"]) < 5e-3
    assert result.exit_code == 0


def test_a_figure_past_its_limit_is_a_failure(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []

    def other(folder: Path, path: Path, prose: str, **sizes: int) -> float:
        asked.append(sizes)
        return 1000.0

    monkeypatch.setattr(perplexity, "ask_llama", other)
    options = (str(model), "--text", str(text), "--window", "64", "--windows", "2", "--threads", "1")
    result = run(*options, "--llama", "/nonexistent")
    assert result.exit_code == 1
    assert asked == [{"window": 64, "count": 2, "threads": 1}]
    assert figures(result)["theirs"] == {"llama.cpp": 1000.0}


def chain(*following: int) -> Callable[[Sequence[int], int], Tensor]:
    """Logits of a model that goes on with these tokens after a prompt of one, with probability 2/3."""

    def logits(tokens: Sequence[int], wanted: int) -> Tensor:
        row = torch.full((1, 10), -math.inf)
        row[0, 9] = 0.0
        row[0, following[len(tokens) - 1]] = math.log(2)
        return row

    return logits


class Encoder:
    """Every text is one token."""

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        return [1]


class Model:
    """As far as `compare_prompts` looks."""

    def __init__(self, logits: Callable[[Sequence[int], int], Tensor]) -> None:
        self.logits = logits
        self.tokenizer = Encoder()


def test_greedy_goes_on_from_its_own_tokens() -> None:
    tokens, first = greedy(chain(4, 5, 6), [1], 3)
    assert tokens == [4, 5, 6]
    assert first == pytest.approx(math.log(2 / 3))


@pytest.mark.parametrize(
    ("theirs", "agreed", "difference"), [((4, 5, 6), 3, 0.0), ((4, 7, 6), 1, 0.0), ((9, 5, 6), 0, math.log(2))]
)
def test_agreement_is_counted_from_the_start(theirs: tuple[int, ...], agreed: int, difference: float) -> None:
    (found,) = compare_prompts(Model(chain(4, 5, 6)), chain(*theirs), ["text"], 3)  # type: ignore[arg-type]
    assert found["agreed"] == agreed
    assert found["difference"] == pytest.approx(difference, abs=1e-6) or theirs[0] != 4


def test_the_summary_counts_prompts() -> None:
    found = [{"difference": 0.01, "agreed": 8}, {"difference": 0.12, "agreed": 0}, {"difference": 0.02, "agreed": 3}]
    assert summarise(found, 8) == {
        "prompts": 3,
        "largest_difference": 0.12,
        "same_first_token": 2,
        "same_answer": 1,
        "tokens_agreed": 3.7,
        "of_tokens": 8,
    }
