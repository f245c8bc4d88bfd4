"""`kvell top`: the live view of a running server in a terminal."""

from server.top.run import run

__all__ = ["run"]
