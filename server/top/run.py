"""The loop of `kvell top`: looks and keys come from a thread each, and the screen is drawn anew with each of them.

Without a terminal one look is printed, as plain text, and that is all.
"""

import contextlib
import queue
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Iterator
from typing import TextIO

import httpx
from rich.console import Console
from rich.live import Live
from rich.text import Text

from server.chat_client import base_of, printable
from server.top.looks import Look, NoConnection, first_look, watched
from server.top.view import draw

HISTORY = 240  # looks, two minutes

Event = Look | NoConnection | Exception | None  # None: the user leaves


def run(url: str, *, api_key: str | None, transport: httpx.BaseTransport | None = None) -> None:
    """Watch until q or Ctrl-C. Raises httpx.HTTPError where the server refuses, or without a terminal is not there."""
    console = Console(highlight=False)
    headers = {b"authorization": f"Bearer {api_key}".encode(errors="replace")} if api_key else {}
    with httpx.Client(base_url=base_of(url), headers=headers, transport=transport) as client:
        if console.is_terminal and sys.stdin.isatty():
            with contextlib.suppress(KeyboardInterrupt):
                _watch(client, console)
        else:
            look = first_look(client)
            console.print(draw(look, (), width=console.width, height=console.height))


def _watch(client: httpx.Client, console: Console) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    over = threading.Event()
    with keys_at_once(sys.stdin), Live(console=console, screen=True, auto_refresh=False) as screen:
        threading.Thread(target=_look, args=(client, events, over), daemon=True).start()
        threading.Thread(target=_listen, args=(sys.stdin, events), daemon=True).start()
        try:
            _show(events, screen)
        finally:
            over.set()


def _show(events: "queue.SimpleQueue[Event]", screen: Live) -> None:
    """Until the user leaves. Raises what the server refused."""
    rates: deque[float] = deque(maxlen=HISTORY)
    latest: Look | None = None
    while (event := events.get()) is not None:
        if isinstance(event, Exception):
            raise event
        console = screen.console
        if isinstance(event, Look):
            latest = event
            rates.append(event.tokens_per_second.decode)
            screen.update(draw(event, rates, width=console.width, height=console.height), refresh=True)
        else:
            name = f"{latest.model}: " if latest else ""
            words = printable(f"{name}no connection ({event.why}); trying again, q leaves")
            screen.update(Text(words, style="red"), refresh=True)


def _look(client: httpx.Client, events: "queue.SimpleQueue[Event]", over: threading.Event) -> None:
    try:
        for event in watched(client, pause=lambda seconds: not over.wait(seconds)):
            events.put(event)
    except Exception as error:  # the loop raises it again; once the user has left, the client was closed under our feet
        events.put(error)


def _listen(keyboard: TextIO, events: "queue.SimpleQueue[Event]") -> None:
    while key := keyboard.read(1):
        if key in "qQ":
            break
    events.put(None)


@contextlib.contextmanager
def keys_at_once(keyboard: TextIO) -> Iterator[None]:
    """While inside, a key is read when it is pressed, not with the line's end, and is not shown."""
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
