"""The page in a real Chromium: by keyboard only, tokens with alternatives, the live view, three sizes, two themes.

KVELL_SCREENSHOTS names a directory for pictures to look at; they are not kept otherwise.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.live_server import LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SIZES = [(360, 740), (1280, 800), (3840, 2160)]

expect.set_options(timeout=60_000)

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    with LiveServer(str(model), "--threads", "1", "--kv-cache-memory", "64MiB", "--api-key", "sesame") as live:
        live.headers = {"Authorization": "Bearer sesame"}
        yield live.wait_ready()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(server: LiveServer, browser: Browser) -> Iterator[object]:
    """Opens the page with the key as a password, at a size, in a theme. In the end, the console must be empty."""
    said: list[str] = []
    contexts = []

    def open_at(size: tuple[int, int] = SIZES[1], theme: str = "light") -> Page:
        context = browser.new_context(
            http_credentials={"username": "me", "password": "sesame"},
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(server.url)
        expect(page.locator("#state")).to_have_text("ready")
        return page

    yield open_at
    for context in contexts:
        context.close()
    # the browser itself notes the 401 that made it ask for the password, and a 400 that a test provokes
    assert [line for line in said if "Failed to load resource" not in line] == []


def ask(page: Page, text: str) -> None:
    """By keyboard: the text has the focus from the start."""
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def finished(page: Page) -> None:
    expect(page.locator("#halt")).to_be_disabled()


def test_a_conversation_by_keyboard_only(open_page, server: LiveServer) -> None:
    page = open_page()
    ask(page, "hello there")
    finished(page)
    tokens = page.locator(".turn.assistant .token")
    assert tokens.count() > 0
    assert "tokens/s" in page.locator("#figures").inner_text()
    page.locator(".turn.assistant").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip tr").count() >= 5
    assert page.locator("#tip .chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_what_is_written_is_what_the_api_says(open_page, server: LiveServer) -> None:
    page = open_page()
    page.locator("summary").click()
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "20")
    page.select_option("#mode", "completion")
    page.locator("#text").focus()
    ask(page, "once upon")
    finished(page)
    fields = {"prompt": "once upon", "temperature": 0, "max_tokens": 20}
    said = server.request("POST", "/v1/completions", fields, **server.headers).json()["choices"][0]["text"]
    assert page.locator(".turn.assistant").text_content() == said


def test_an_answer_is_stopped_by_escape(open_page, server: LiveServer) -> None:
    page = open_page()
    page.locator("summary").click()
    page.fill("#max_tokens", "")
    page.locator("#text").focus()
    ask(page, "go on for ever")
    page.wait_for_selector(".turn.assistant .token")
    page.keyboard.press("Escape")
    finished(page)
    server.until(lambda: server.figure("kvell_requests_running") == 0, "it still runs")


def test_a_mistake_is_said_in_the_server_s_words(open_page) -> None:
    page = open_page()
    page.locator("summary").click()
    page.fill("#temperature", "7")
    page.locator("#text").focus()
    page.evaluate("document.getElementById('temperature').removeAttribute('max')")
    ask(page, "hello")
    page.wait_for_selector("#problem:not([hidden])")
    assert "temperature" in page.locator("#problem").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_everything_fits_at_every_size(open_page, size: tuple[int, int], theme: str) -> None:
    page = open_page(size, theme)
    ask(page, "hello there")
    finished(page)
    expect(page.locator("#groups canvas")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    page.locator(".turn.assistant .token").first.hover()
    box = page.locator("#tip").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size[0]
    if directory := os.environ.get("KVELL_SCREENSHOTS"):
        page.screenshot(path=Path(directory) / f"{size[0]}-{theme}.png", full_page=True)


def test_the_live_view_shows_the_blocks_while_it_runs(open_page, server: LiveServer) -> None:
    page = open_page()
    page.locator("summary").click()
    page.fill("#max_tokens", "")
    page.locator("#text").focus()
    ask(page, "go on for ever")
    expect(page.locator("#running")).to_have_text("1")
    expect(page.locator("#groups")).to_contain_text(re.compile(r": [1-9]\d* used"))
    page.keyboard.press("Escape")
    expect(page.locator("#running")).to_have_text("0")
    expect(page.locator("#groups")).to_contain_text(": 0 used")
