"""How far a download is, as a callback, so that whoever fetches knows no terminal."""

from collections.abc import Callable

# called with what is being done, how many bytes of it are done, and how many there are (None: not known)
Progress = Callable[[str, int, int | None], None]


def silent(what: str, done: int, total: int | None) -> None:
    """For callers who show nothing."""
