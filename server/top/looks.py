"""What `/live` of a running server says, look after look, also through its restarts. Knows HTTP and no terminal."""

from collections.abc import Callable, Iterator

import httpx
import msgspec

from server.chat_client import reason

SILENCE_SECONDS = 10.0  # a look comes every half second
PAUSE_SECONDS = 1.0  # before the next try


class Group(msgspec.Struct, frozen=True):
    """The blocks of one KV group."""

    used: int
    cached: int
    free: int
    block_bytes: int

    @property
    def total(self) -> int:
        return self.used + self.cached + self.free


class Picture(msgspec.Struct, frozen=True):
    """They as cells, in runs: state, count, state, count ... States as in `server.engine.request.GroupPicture`."""

    blocks_per_cell: int
    runs: tuple[int, ...]


class Rates(msgspec.Struct, frozen=True):
    """Tokens per second."""

    prompt: float
    decode: float


class Look(msgspec.Struct, frozen=True):
    """How a server does, at one moment."""

    model: str
    state: str
    running: int
    waiting: int
    tokens_per_second: Rates
    time_to_first_token_seconds: float | None
    groups: tuple[Group, ...] = ()
    picture: tuple[Picture, ...] = ()
    preemptions: int = 0


class NoConnection(msgspec.Struct, frozen=True):
    """There is nothing to look at for now, and why: one line."""

    why: str


class WatchFailed(httpx.HTTPError):
    """There will be nothing to look at, however often one tries. One line."""


def looks(client: httpx.Client) -> Iterator[Look | NoConnection]:
    """One look after the other, until the stream ends; NoConnection where the server has no place for one more watcher.

    Raises httpx.HTTPError, and WatchFailed where to try again would help nobody.
    """
    with client.stream("GET", "/live", timeout=httpx.Timeout(SILENCE_SECONDS)) as response:
        if response.status_code != 200:
            response.read()
            if response.status_code < 500:
                raise WatchFailed(reason(response))
            yield NoConnection(reason(response))
            return
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise WatchFailed(f"what answers is no kvell: {kind.partition(';')[0] or 'no content-type'}")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield _parsed(line.removeprefix("data: "))
        yield NoConnection("the server ended the stream")


def _parsed(event: str) -> Look:
    try:
        return msgspec.json.decode(event, type=Look)
    except msgspec.MsgspecError as error:
        raise WatchFailed(f"what answers is no kvell: {error}") from None


def first_look(client: httpx.Client) -> Look:
    """The first there is. Raises httpx.HTTPError."""
    try:
        first = next(looks(client), NoConnection("what answers is no kvell"))
    except httpx.ConnectError as error:
        raise WatchFailed(f"no server answers at {client.base_url} ({error}); start one with: kvell serve") from None
    if isinstance(first, NoConnection):
        raise WatchFailed(first.why)
    return first


def watched(client: httpx.Client, pause: Callable[[float], bool]) -> Iterator[Look | NoConnection]:
    """For ever, also when the server goes and comes again, until `pause(seconds)` is False. Raises WatchFailed."""
    going = True
    while going:
        try:
            yield from looks(client)
        except WatchFailed:
            raise
        except httpx.HTTPError as error:
            yield NoConnection(str(error) or type(error).__name__)
        going = pause(PAUSE_SECONDS)
