"""/v1/models, and the model field of every endpoint: another model is a 404, never this one's answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from safetensors.numpy import load_file

from model.checkpoint.source import open_checkpoint
from server.api.routes import create_app
from server.app import open_model
from tests.helpers.api_world import READY, make_world
from tests.helpers.asgi import call
from tests.helpers.tiny_model_dir import make_model_dir

BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [97]},
}


async def test_the_one_model_is_listed() -> None:
    answered = await call(make_world().app, "GET", "/v1/models")
    entry = {
        "id": "tiny",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "kvell",
        "max_model_len": 200,
        "context_length": 200,
        "digest": "d1gest",
        "format": "gguf",
        "quantization": "none",
        "stored_bytes": {"Q4_K": 90, "F32": 10},
        "dtype": "float32",
        "kv_cache_dtype": "float32",
        "backend": "torch",
        "bit_exact": False,
    }
    assert answered.json() == {"object": "list", "data": [entry]}
    assert (await call(make_world().app, "GET", "/v1/models/tiny")).json() == entry


async def test_what_the_cache_can_not_hold_is_not_promised() -> None:
    world = make_world()
    world.service.info = structs.replace(READY, cache_tokens=96)
    assert (await call(world.app, "GET", "/v1/models/tiny")).json()["max_model_len"] == 96
    assert (await call(world.app, "POST", "/tokenize", {"prompt": "a"})).json()["max_model_len"] == 96


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/tiny"])
async def test_before_the_engine_has_loaded_there_is_no_model_to_list(path: str) -> None:
    # tools wait for this list and then begin at once
    world = make_world()
    world.service.info, world.service.reason = None, "the engine is loading the model"
    answered = await call(world.app, "GET", path)
    assert (answered.status, answered.error["code"]) == (503, "engine_unavailable")


async def test_the_quantization_is_that_of_the_weights_as_they_run() -> None:
    """With --quantize it is not that of the files, which stored_bytes tells."""
    world = make_world()
    world.service.info = structs.replace(READY, quantization="int4")
    assert (await call(world.app, "GET", "/v1/models/tiny")).json()["quantization"] == "int4"


def test_the_facts_are_read_off_the_files(tmp_path: Path) -> None:
    path = make_model_dir(tmp_path / "tiny")
    facts = open_model(path, "tiny", {}).facts
    assert facts.format == "hf"
    assert facts.digest == open_checkpoint(path).digest()
    tensors = load_file(path / "model.safetensors")
    assert facts.stored_bytes == {"F32": sum(tensor.nbytes for tensor in tensors.values())}


async def test_while_the_engine_restarts_the_list_stays() -> None:
    world = make_world()
    world.service.state = "restarting"
    assert (await call(world.app, "GET", "/v1/models")).status == 200


async def test_a_name_with_slashes_has_its_page() -> None:
    world = make_world()
    serving = replace(world.serving, model=replace(world.serving.model, id="hf:owner/name"))
    answered = await call(create_app(serving), "GET", "/v1/models/hf:owner/name")
    assert answered.json()["id"] == "hf:owner/name"


async def test_another_name_has_none() -> None:
    answered = await call(make_world().app, "GET", "/v1/models/huge")
    assert (answered.status, answered.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_asking_another_model_is_a_404_that_names_both(path: str, stream: bool) -> None:
    world = make_world()
    fields = {"stream": stream} if path.startswith("/v1") else {}
    answered = await call(world.app, "POST", path, BODIES[path] | fields | {"model": "huge"})
    assert answered.status == 404
    assert (answered.error["code"], answered.error["param"]) == ("model_not_found", "model")
    assert "'huge'" in answered.error["message"]
    assert "'tiny'" in answered.error["message"]
    assert not world.service.submitted


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", [None, "tiny"])
async def test_its_own_name_or_none_is_served(path: str, name: str | None) -> None:
    assert (await call(make_world().app, "POST", path, BODIES[path] | {"model": name})).status == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", [5, ["tiny"], {"a": 1}, True])
async def test_a_name_that_is_no_string_is_a_400(path: str, name: Any) -> None:
    answered = await call(make_world().app, "POST", path, BODIES[path] | {"model": name})
    assert (answered.status, answered.error["param"]) == (400, "model")
