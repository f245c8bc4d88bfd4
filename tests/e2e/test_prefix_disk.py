"""A prefix cache that outlives the server: restarted, killed at any moment, over a spoiled or useless folder."""

import os
import signal
import stat
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


def test_a_killed_server_leaves_what_the_next_one_reads_and_nothing_that_is_wrong(model: Path, tmp_path: Path) -> None:
    rng = Random(11)
    prompts = [[rng.randrange(3, 200) for _ in range(180)] for _ in range(4)]
    with serve(model, tmp_path) as server:
        cold = ask(server.wait_ready())
        secret = ask(server, prompt=SECRET, cache_salt=SECRET)
        server.until(lambda: written(server) >= 13, "the blocks were not written")
        spoil(files_in(tmp_path), rng)
        answers = at_once(*[lambda p=p: ask(server, prompt=p) for p in prompts], lambda: kill(server, tmp_path, rng))
    assert answers.pop() is None
    expect_private(tmp_path)
    with serve(model, tmp_path) as server:
        from_disk = [ask(server.wait_ready(), **fields) for fields in ({}, {"prompt": SECRET, "cache_salt": SECRET})]
        again = [ask(server, prompt=prompt) for prompt in prompts]
        figure = server.figure
        assert figure('kvell_prefix_cache_disk_blocks_total{action="read"}') > 0
        assert figure('kvell_prefix_cache_disk_blocks_total{action="refused"}') == 1
        assert not any("Traceback" in line for line in server.errors)
    assert [said for said, _ in from_disk] == [cold[0], secret[0]]
    assert 16 <= sum(cached for _, cached in from_disk) < 192 + 16
    for early, late in zip(answers, again, strict=True):
        assert isinstance(early, Exception) or early[0] == late[0]


def kill(server: LiveServer, folder: Path, rng: Random) -> None:
    """At a moment when blocks are being written."""
    least = len(files_in(folder)) + rng.randrange(20)
    server.until(lambda: len(files_in(folder)) > least, "nothing was written")
    for child in (server.engine_pid, server.process.pid):
        os.kill(child, signal.SIGKILL)


def spoil(files: list[Path], rng: Random) -> None:
    """Half of one file is gone, as after a power cut: one from the middle of the long prompt."""
    long = max(files, key=lambda file: len(file.read_bytes()))
    file = sorted(files, key=lambda file: len(file.read_bytes()))[len(files) // 2]
    assert file != long
    file.write_bytes(file.read_bytes()[: rng.randrange(1000)])


def expect_private(folder: Path) -> None:
    """Only the owner can look at what is there, and no name tells what it is."""
    for path in [*files_in(folder), files_in(folder)[0].parent]:
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700)
        assert "swordfish" not in path.name
