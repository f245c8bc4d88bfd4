"""More of `test_prefix_disk`, a minute long (`make test-disk`): kill after kill, spoiled files, a useless folder."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.test_prefix_disk import ask, kill, serve, written
from tests.helpers.live_server import at_once
from tests.helpers.on_disk import files_in
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("models") / "tiny")


def test_a_server_killed_while_it_writes_leaves_only_what_is_right(model: Path, tmp_path: Path) -> None:
    rng = Random(11)
    rounds = [[[rng.randrange(3, 200) for _ in range(180)] for _ in range(6)] for _ in range(3)]
    early: list[Any] = []
    for prompts in rounds:
        with serve(model, tmp_path) as server:
            server.wait_ready()
            jobs = [lambda p=p: ask(server, prompt=p) for p in prompts]
            early += at_once(*jobs, lambda: kill(server, tmp_path, rng))[:-1]
    every = [prompt for prompts in rounds for prompt in prompts]
    with serve(model, tmp_path) as server:
        server.wait_ready()
        final = [ask(server, prompt=prompt) for prompt in every]
        assert server.figure('kvell_prefix_cache_disk_blocks_total{action="refused"}') == 0
        assert not any("Traceback" in line for line in server.errors)
    assert sum(cached for _, cached in final) > 0
    with serve(model, tmp_path / "other") as server:
        server.wait_ready()
        assert [ask(server, prompt=prompt)[0] for prompt in every] == [said for said, _ in final]
    for answer, (said, _) in zip(early, final, strict=True):
        assert isinstance(answer, Exception) or answer[0] == said


def test_spoiled_files_and_another_models_are_computed_anew(model: Path, tmp_path: Path) -> None:
    with serve(model, tmp_path) as server:
        cold = ask(server.wait_ready())
        server.until(lambda: written(server) >= 12, "the blocks were not written")
    for number, file in enumerate(files_in(tmp_path)):
        record = bytearray(file.read_bytes())
        record[Random(number).randrange(len(record))] ^= 4
        file.write_bytes(record)
    with serve(model, tmp_path) as server:
        again = ask(server.wait_ready())
        assert server.figure('kvell_prefix_cache_disk_blocks_total{action="refused"}') >= 1
        server.until(lambda: written(server) >= 12, "they were not written anew")
    assert (again[0], again[1]) == (cold[0], 0)
    other = make_model_dir(tmp_path / "other model", seed=1)
    with serve(other, tmp_path) as server:
        assert ask(server.wait_ready())[1] == 0


def test_a_folder_that_cannot_be_used_is_said_once_and_the_server_serves(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serve(model, tmp_path / "file") as server:
        answers = [ask(server.wait_ready()) for _ in range(3)]
        assert [cached for _, cached in answers] == [0, 192, 192]
        said = [line for line in server.errors + server.output if "--prefix-cache-dir" in line]
    assert len(said) == 1, said
    assert "Traceback" not in json.dumps(server.errors)
