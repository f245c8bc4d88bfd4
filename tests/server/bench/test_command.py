"""`kvell bench serve`: flags become a load, what is wrong with them is said by name, the last line is JSON."""

import asyncio
import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.bench import command
from server.cli import app
from tests.helpers.tiny_http import TinyServer, response, stream

runner = CliRunner()
GOOD = stream(*({"choices": [{"text": word}]} for word in ("a", "b", "c")), "data: [DONE]\n\n")


class Models(TinyServer):
    """Says who owns its model, or answers the list of models with other bytes."""

    listing = b'{"data": [{"id": "tiny", "owned_by": "nobody"}]}'
    status = "200 OK"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b" /v1/models " in head:
            writer.write(response(self.listing, status=self.status))
        else:
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            writer.write(await self._answered("", json.loads(await reader.readexactly(length))))
        await writer.drain()
        writer.close()


@pytest.fixture
def tiny() -> Iterator[Models]:
    """On a loop of its own, as the command runs one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Models(lambda path, body: GOOD)

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(server.serve, "127.0.0.1", 0)

    listening = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    loop.call_soon_threadsafe(listening.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def bench(*arguments: str) -> Any:
    return runner.invoke(app, ["bench", "serve", *arguments], env={"COLUMNS": "120", "KVELL_API_KEY": ""})


def figures_of(result: Any) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_a_closed_loop_ends_in_a_table_and_a_line_of_json(tiny: Models) -> None:
    result = bench("--url", tiny.url, "--concurrency", "2", "--num-requests", "5", "--goodput", "ttft:60000")
    figures = figures_of(result)
    assert (figures["requests"], figures["outcomes"]["ok"], figures["output_tokens"]) == (5, 5, 15)
    assert (figures["model"], figures["concurrency"], figures["rate"]) == ("tiny", 2, None)
    assert figures["goodput"]["requests"] == 5
    assert figures["client_cpu_share"] >= 0
    assert "between tokens" in result.stdout
    assert len(tiny.seen) == 5 + 2, "and two to warm up"
    assert all("ignore_eos" not in each for each in tiny.seen), "this server is not known to understand it"


def test_a_burst_s_rate_is_written_as_inf(tiny: Models) -> None:
    tiny.together = 3
    figures = figures_of(bench("--url", tiny.url + "/v1", "--rate", "inf", "--num-requests", "3", "--warmup", "0"))
    assert (figures["rate"], figures["requests"], tiny.most) == ("inf", 3, 3)


@pytest.mark.parametrize(("flags", "sent"), [([], True), (["--no-ignore-eos"], False)])
def test_full_length_is_asked_of_servers_that_know_how(tiny: Models, flags: list[str], sent: bool) -> None:
    tiny.listing = b'{"data": [{"id": "m", "owned_by": "kvell"}]}'
    figures_of(bench("--url", tiny.url, "--concurrency", "1", "--num-requests", "1", *flags))
    assert all(each.get("ignore_eos", False) == sent for each in tiny.seen)


def test_lengths_model_and_endpoint_reach_the_server(tiny: Models) -> None:
    sizes = ["--prompt-tokens", "9", "--output-tokens", "4-4", "--shared-prefix", "3", "--endpoint", "chat"]
    figures_of(bench("--url", tiny.url, "--concurrency", "1", "--num-requests", "2", "--model", "mine", *sizes))
    assert {each["model"] for each in tiny.seen} == {"mine"}
    assert {len(each["messages"][0]["content"].split()) for each in tiny.seen} == {9}
    assert {each["max_tokens"] for each in tiny.seen} == {4}


def test_when_nothing_succeeds_the_exit_code_says_so_and_the_figures_are_there(tiny: Models) -> None:
    tiny.answer = lambda path, body: response(b"{}", status="503 No")
    result = bench("--url", tiny.url, "--concurrency", "1", "--num-requests", "2", "--warmup", "0")
    assert result.exit_code == 1
    assert json.loads(result.stdout.strip().splitlines()[-1])["outcomes"]["503"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --rate"),
        (["--rate", "1", "--concurrency", "1"], "one of them"),
        (["--rate", "0"], "no rate"),
        (["--rate", "fast"], "no rate"),
        (["--rate", "inf"], "needs the number"),
        (["--rate", "nan"], "no rate"),
        (["--rate", "1", "--duration", "5", "--num-requests", "5"], "one of them"),
        (["--rate", "1", "--prompt-tokens", "x"], "no length"),
        (["--rate", "1", "--output-tokens", "9-1"], "no length"),
        (["--rate", "1", "--goodput", "speed:1"], "no target"),
        (["--rate", "1", "--endpoint", "messages"], "allowed: completions, chat"),
        (["--rate", "1", "--url", "localhost"], "no address"),
    ],
)
def test_a_wrong_flag_is_named(arguments: list[str], message: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("status", "listing", "message"),
    [
        ("401 Unauthorized", b"{}", "is a key needed"),
        ("200 OK", b"<html>", "lists no models"),
        ("200 OK", b'{"data": []}', "lists no models"),
        ("200 OK", b"[1]", "lists no models"),
    ],
)
def test_what_is_no_server_of_this_kind_is_one_line(tiny: Models, status: str, listing: bytes, message: str) -> None:
    tiny.status, tiny.listing = status, listing
    result = bench("--url", tiny.url, "--rate", "1")
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_nobody_there_is_one_line() -> None:
    result = bench("--url", "http://127.0.0.1:1", "--rate", "1")
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (1, 1)
    assert "no server answers at http://127.0.0.1:1" in result.stderr


def test_a_picture_without_matplotlib_is_refused_before_any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = bench("--rate", "1", "--plot", "x.png")
    assert result.exit_code == 2
    assert "pip install" in result.stderr


def test_a_picture_is_written_and_one_that_can_t_be_is_one_line(tiny: Models, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    load = ["--url", tiny.url, "--concurrency", "1", "--num-requests", "1", "--warmup", "0"]
    figures_of(bench(*load, "--plot", str(tmp_path / "a.png")))
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    result = bench(*load, "--plot", str(tmp_path / "a.nothing"))
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert json.loads(result.stdout.strip().splitlines()[-1])["requests"] == 1  # the figures are not lost with it


def test_a_picture_in_a_folder_that_is_not_there_is_refused_before_any_load(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = bench("--rate", "1", "--plot", str(tmp_path / "nowhere" / "a.png"))
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


def test_a_load_is_described() -> None:
    assert command.describe(command.Shape(rate=2.5)) == "2.5 requests a second arrive"
    assert command.describe(command.Shape(rate=float("inf"))) == "all requests at once"
    assert command.describe(command.Shape(concurrency=4)) == "4 clients, one request each at a time"
