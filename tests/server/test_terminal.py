"""What a person sees when the server starts."""

import io
import json
import shlex

import pytest
from msgspec import structs
from rich.console import Console

from server.engine.wire import Progress
from server.terminal import announce, curl_line, loading_bar
from tests.helpers.api_world import READY

URL = "http://127.0.0.1:8000"


def said(*, chats: bool = True, needs_key: bool = False, model_id: str = "tiny", width: int = 60) -> str:
    console = Console(file=io.StringIO(), width=width)
    announce(console, READY, url=URL, model_id=model_id, chats=chats, needs_key=needs_key)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_it_names_address_model_context_and_cache() -> None:
    lines = said().splitlines()
    assert lines[0] == "kvell is ready"
    assert lines[1].split() == ["address", URL]
    assert "tiny (cpu, torch, float32, 1 threads" in lines[2]
    assert "200 tokens" in lines[3]
    assert "400 tokens, 1 MiB (float32)" in lines[4]


def test_it_says_how_the_weights_are_quantised() -> None:
    console = Console(file=io.StringIO(), width=80)
    announce(console, structs.replace(READY, quantization="int4"), url=URL, model_id="m", chats=True, needs_key=False)
    assert "m (int4 weights, cpu, torch" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_context_is_no_longer_than_the_cache() -> None:
    console = Console(file=io.StringIO(), width=80)
    small = structs.replace(READY, cache_tokens=96)
    announce(console, small, url=URL, model_id="tiny", chats=True, needs_key=False)
    assert "  context   96 tokens" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [20, 80])
def test_no_line_is_broken_however_narrow_the_terminal(width: int) -> None:
    assert len(said(width=width).splitlines()) == 6
    assert curl_line(URL, "tiny", chats=True, needs_key=False) in said(width=width)


def test_markup_in_a_name_is_only_text() -> None:
    assert "[red]x[/red]" in said(model_id="[red]x[/red]")


def parsed(line: str) -> tuple[list[str], dict[str, object]]:
    words = shlex.split(line)
    return words, json.loads(words[words.index("-d") + 1])


def test_the_curl_line_is_a_request_that_streams() -> None:
    words, body = parsed(curl_line(URL, "tiny", chats=True, needs_key=False))
    assert words[:3] == ["curl", "-N", URL + "/v1/chat/completions"]
    assert "Content-Type: application/json" in words
    assert body["model"] == "tiny"
    assert body["stream"] is True
    assert "Authorization" not in " ".join(words)


def test_without_a_template_it_asks_for_a_completion() -> None:
    words, body = parsed(curl_line(URL, "tiny", chats=False, needs_key=False))
    assert words[2] == URL + "/v1/completions"
    assert "prompt" in body


def test_with_a_key_it_has_a_place_for_it_that_the_shell_fills() -> None:
    assert '-H "Authorization: Bearer $KVELL_API_KEY"' in curl_line(URL, "tiny", chats=True, needs_key=True)


@pytest.mark.parametrize("name", ["it's", 'a"b', "a $HOME `x`", "模型"])
def test_a_name_with_special_characters_survives_the_shell(name: str) -> None:
    assert parsed(curl_line(URL, name, chats=True, needs_key=False))[1]["model"] == name


def test_the_loading_bar_leaves_nothing_behind_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with loading_bar(console) as show:
        show(Progress("reading weights", 0.5))
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_the_loading_bar_shows_how_far_it_is_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with loading_bar(console) as show:
        show(Progress("reading weights", 0.5))
    assert "reading weights" in console.file.getvalue()  # type: ignore[attr-defined]
