"""`kvell plan` and `kvell bench serve` beside a real server: what was planned is there, what is measured is so."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer, run_command
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

CACHE = ("--kv-cache-memory", "8MiB", "--max-num-seqs", "2", "--kv-cache-dtype", "int8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model_dir(tmp_path_factory.mktemp("measuring") / "model"))


@pytest.fixture(scope="module")
def server(model: str) -> Iterator[LiveServer]:
    with LiveServer(model, *CACHE, "--threads", "1", "--max-queue-seconds", "0.2") as server:
        yield server.wait_ready()


def bench(server: LiveServer, *options: str) -> Any:
    done = run_command("bench", "serve", "--url", server.url, "--prompt-tokens", "8-16", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_started_server_has_the_cache_that_was_planned(model: str, server: LiveServer) -> None:
    planned = json.loads(run_command("plan", model, *CACHE, "--json").stdout)
    assert server.figure("kvell_kv_cache_bytes") == planned["cache_bytes"]
    assert server.figure("kvell_kv_cache_blocks") == sum(group["num_blocks"] for group in planned["groups"])
    assert f"{planned['cache_tokens']} tokens" in "\n".join(server.output)


def test_what_a_burst_brings_is_what_the_server_counts(server: LiveServer) -> None:
    before = server.figure("kvell_generation_tokens_total")
    figures = bench(server, "--rate", "inf", "--num-requests", "12", "--output-tokens", "9", "--warmup", "0")
    assert figures["outcomes"]["ok"] == 12, figures["error_details"]
    assert figures["output_tokens"] == 12 * 9, "answers of full length: it is known to understand ignore_eos"
    assert server.figure("kvell_generation_tokens_total") - before == 12 * 9


def test_overload_ends_in_answers_and_honest_refusals_and_many_come_back(server: LiveServer) -> None:
    load = ("--rate", "60", "--duration", "3", "--output-tokens", "300", "--endpoint", "chat", "--retry-after")
    figures = bench(server, *load, "--warmup", "0")
    outcomes = figures["outcomes"]
    assert outcomes["ok"] > 0
    assert outcomes["503"] > 0
    assert outcomes["ok"] + outcomes["503"] == figures["requests"], figures["error_details"]
    assert any("would wait" in detail for detail in figures["error_details"])
    assert figures["returned"]["requests"] > 0
    server.until_idle()
