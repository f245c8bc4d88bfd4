"""What goes wrong with one request ends that request, with an error, its neighbours don't notice, not by a bit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.faults.conftest import REPEATS, SEED, Report
from tests.helpers.arena import FAULTY, SMALL, Arena
from tests.helpers.faults import BAD_GRAMMAR_SEED, DEVOUR, RAISE, SAMPLER
from tests.helpers.live_server import LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

HOLE = 31  # a token whose embedding is not a number
BACKENDS = ("auto",) if REPEATS == 1 else ("auto", "torch")


@pytest.fixture(scope="module")
def holed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_model_dir(tmp_path_factory.mktemp("models") / "holed")
    weights = load_file(path / "model.safetensors")
    weights["model.embed_tokens.weight"][HOLE] = np.nan
    weights["lm_head.weight"][HOLE] = 0  # nobody writes it by chance
    save_file(weights, path / "model.safetensors")
    return path


@pytest.fixture(scope="module", params=BACKENDS)
def holed(holed_model: Path, request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A server whose model has a hole. On torch in float64, where sums in any order give the same tokens."""
    types = ("--dtype", "float64", "--kv-cache-dtype", "float64") if request.param == "torch" else ()
    with LiveServer(str(holed_model), *SMALL, "--backend", request.param, *types, command=FAULTY) as live:
        yield Arena(live.wait_ready(), seed=SEED)


PLAIN: dict[str, Any] = {"prompt": [60, 61, 62]}
CAUSES: dict[str, dict[str, Any]] = {
    "an exception in the step": {"prompt": [RAISE, 20, 60]},
    "an exception in the sampler": {"prompt": [SAMPLER, 20, 60]},
    "too much memory": {"prompt": [DEVOUR, 20, 60]},
    "an exception in the grammar": PLAIN
    | {"structured_outputs": {"regex": "[a-z]{50,90}"}, "seed": BAD_GRAMMAR_SEED, "max_tokens": 100},
    "NaN in the prompt": {"prompt": [60, HOLE, 62]},
    "NaN after a token": PLAIN | {"logit_bias": {str(HOLE): 100}},
    "NaN and a scored prompt": {"prompt": [60, 61, HOLE], "echo": True, "logprobs": 2, "max_tokens": 5},
}


@pytest.mark.parametrize("cause", CAUSES)
def test_alone(holed: Arena, report: Report, cause: str) -> None:
    restarts = holed.server.figure("kvell_engine_restarts_total")
    for round_id in range(REPEATS):
        with holed.watched() as watch:
            crowd = holed.crowd()
            holed.some_moment(crowd)
            failed = holed.ask(**CAUSES[cause], stream=bool(round_id % 2 == 0))
            heard = crowd.join()
        assert (failed.outcome, failed.code) == ("error", "generation_failed"), failed
        assert {each.outcome for each in heard} == {"ok"}
        assert watch.states == ["ready"]
        report.hear(failed, *heard)
    holed.settle()
    assert holed.server.figure("kvell_engine_restarts_total") == restarts


def test_what_failed_may_come_again(holed: Arena) -> None:
    """The engine survived it, so nobody is suspect, and the same fault gives the same error."""
    for _ in range(2):
        assert holed.ask([RAISE, 5, 60]).code == "generation_failed"
    holed.settle()
