"""A prefix cache that outlives the server: restarted, killed at any moment, over a spoiled or useless folder."""

import json
import signal
import stat
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer, at_once
from tests.helpers.on_disk import files_in
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

SECRET = "the launch code is swordfish"
PROMPT = list(range(3, 200))
ASK = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0.7, "seed": 5, "logprobs": 2, "return_token_ids": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_dir(tmp_path_factory.mktemp("models") / "tiny")


def serve(model: Path, folder: Path, *more: str) -> LiveServer:
    return LiveServer(
        str(model), "--threads", "1", "--kv-cache-memory", "64MiB", "--prefix-cache-dir", str(folder), *more
    )


def ask(server: LiveServer, **fields: Any) -> tuple[Any, int]:
    """What was said, every bit of it, and how much of the prompt was cached."""
    answer = server.request("POST", "/v1/completions", ASK | fields)
    assert answer.status == 200, answer.body
    choice, usage = answer.json()["choices"][0], answer.json()["usage"]
    return (choice["text"], choice["logprobs"], choice["finish_reason"]), usage["prompt_tokens_details"][
        "cached_tokens"
    ]


def written(server: LiveServer) -> float:
    return server.figure('kvell_prefix_cache_disk_blocks_total{action="written"}')


def test_a_restarted_server_reads_what_the_one_before_wrote(model: Path, tmp_path: Path) -> None:
    with serve(model, tmp_path) as server:
        cold = ask(server.wait_ready())
        ask(server, prompt=SECRET, cache_salt=SECRET)
        server.until(lambda: written(server) >= 13, "the blocks were not written")
        assert server.figure("kvell_prefix_cache_disk_bytes") > 0
        server.signal(signal.SIGTERM)
        server.wait()
    with serve(model, tmp_path) as server:
        from_disk, warm = ask(server.wait_ready()), ask(server)
        assert server.figure('kvell_prefix_cache_disk_blocks_total{action="read"}') == 12
    assert (cold[1], from_disk[1], warm[1]) == (0, 192, 192)
    assert cold[0] == from_disk[0] == warm[0]
    for path in [*files_in(tmp_path), files_in(tmp_path)[0].parent]:
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700)
        assert "swordfish" not in path.name


def test_a_server_killed_while_it_writes_leaves_only_what_is_right(model: Path, tmp_path: Path) -> None:
    rng = Random(11)
    prompts = [[rng.randrange(3, 200) for _ in range(180)] for _ in range(6)]
    expected: list[Any] = []
    for number in range(3):
        with serve(model, tmp_path) as server:
            server.wait_ready()
            gone = threading.Event()

            def kill(server: LiveServer = server, gone: threading.Event = gone, least: int = 5 * number) -> None:
                server.until(lambda: len(files_in(tmp_path)) > least + rng.randrange(20), "nothing was written")
                server.signal(signal.SIGKILL)
                gone.set()

            answers = at_once(*[lambda p=p: ask(server, prompt=p) for p in prompts], kill)[:-1]
            expected.append(answers)
    with serve(model, tmp_path) as server:
        server.wait_ready()
        final = [ask(server, prompt=prompt) for prompt in prompts]
        assert server.figure('kvell_prefix_cache_disk_blocks_total{action="refused"}') == 0
        assert not any("Traceback" in line for line in server.errors)
    assert sum(cached for _, cached in final) > 0
    with serve(model, tmp_path / "other") as server:
        server.wait_ready()
        assert [ask(server, prompt=prompt)[0] for prompt in prompts] == [said for said, _ in final]
    for answers in expected:
        for answer, (said, _) in zip(answers, final, strict=True):
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
