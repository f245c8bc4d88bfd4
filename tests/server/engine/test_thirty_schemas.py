"""Thirty schemas at two temperatures in one crowd: what ends by itself is valid, and the neighbours notice nothing."""

import json
from collections.abc import Iterator

import jsonschema
import pytest

from model.sampling_params import SamplingParams
from server.engine.request import Constraint, Request
from tests.helpers.constrained import ConstrainedWorld, make_constrained_world
from tests.helpers.schemas import SCHEMAS
from tests.helpers.worlds import Answer

MAX_TOKENS = 400


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ConstrainedWorld:
    """In float64, where company changes no bit on torch either; too few blocks for all, so that some step back."""
    path = tmp_path_factory.mktemp("schemas") / "model"
    return make_constrained_world(path, dtype="float64", max_num_seqs=24, max_model_len=512, kv_cache_bytes=300 * 1024)


def constrained(world: ConstrainedWorld) -> Iterator[Request]:
    for number, schema in enumerate(SCHEMAS.values()):
        for temperature in (0.0, 1.0):
            params = SamplingParams(temperature, seed=number, stop_token_ids=tuple(world.tokenizer.eos_ids))
            constraint = Constraint("json_schema", json.dumps(schema))
            yield Request(f"{number}-{temperature}", (72, 105, number), MAX_TOKENS, params, constraint=constraint)


def free(world: ConstrainedWorld) -> list[Request]:
    return [
        Request(f"free-{n}", (72, 105, 33, n), 60, SamplingParams(float(n % 2), seed=n, num_logprobs=2))
        for n in range(4)
    ]


@pytest.fixture(scope="module")
def crowd(world: ConstrainedWorld) -> dict[str, Answer]:
    requests = [*constrained(world)]
    for place, request in enumerate(free(world)):
        requests.insert(10 * place, request)
    return world.run(requests)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", SCHEMAS)
def test_an_answer_that_ends_by_itself_is_valid(
    world: ConstrainedWorld, crowd: dict[str, Answer], name: str, temperature: float
) -> None:
    answer = crowd[f"{list(SCHEMAS).index(name)}-{temperature}"]
    assert answer.error is None
    if answer.finish == "length":
        assert len(answer.tokens) == MAX_TOKENS
        return
    jsonschema.validate(json.loads(world.text(answer)), SCHEMAS[name], cls=jsonschema.Draft202012Validator)


def test_nearly_all_of_them_end_by_themselves(crowd: dict[str, Answer]) -> None:
    ends = [answer.finish for id, answer in crowd.items() if not id.startswith("free")]
    assert ends.count("stop") >= 0.9 * len(ends), ends


def test_some_of_them_stepped_back_on_the_way(crowd: dict[str, Answer]) -> None:
    assert any(answer.preemptions for answer in crowd.values())


def test_unconstrained_neighbours_get_what_they_get_alone(world: ConstrainedWorld, crowd: dict[str, Answer]) -> None:
    alone = {request.id: world.run([request])[request.id] for request in free(world)}
    assert {id: crowd[id].said for id in alone} == {id: answer.said for id, answer in alone.items()}


def test_constrained_answers_are_the_same_alone(world: ConstrainedWorld, crowd: dict[str, Answer]) -> None:
    for request in [*constrained(world)][::11]:
        assert world.run([request])[request.id].said == crowd[request.id].said
