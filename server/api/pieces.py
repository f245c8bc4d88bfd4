"""What ids look like beside the text that they came from: each token's text, its bytes, and where in the text it is.

Knows bytes and tokens; knows no endpoint.
"""

from collections.abc import Sequence

from model.tokenizer.base import Tokenizer


def token_text(tokenizer: Tokenizer, token: int) -> tuple[str, bytes]:
    """What a token adds to a text, as text and as bytes; a special token, which adds nothing, by its name."""
    piece = tokenizer.piece(token)
    if not piece:
        name = tokenizer.name(token)
        return name, name.encode()
    return piece.decode("utf-8", "replace"), piece


def readable(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text that the model sees in these ids, special tokens by their names."""
    return b"".join(token_text(tokenizer, token)[1] for token in ids).decode("utf-8", "replace")


def located(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[dict[str, object]]:
    """One entry per token; start and end are byte offsets in the UTF-8 form of `text`, which the ids came from.

    A BOS that was put before the text has no bytes in it, and neither has SentencePiece's space at a beginning. Where a
    tokenizer changed the text itself (normalization, characters it doesn't know), there are no offsets from there on:
    null.
    """
    source, at, entries = text.encode(), 0, []
    lost = False
    for index, token in enumerate(ids):
        read, piece = token_text(tokenizer, token)
        end = None if lost else _end(source, at, piece, is_bos=index == 0 and token == tokenizer.bos_id)
        lost = end is None
        entries.append({"id": token, "piece": read, "bytes": list(piece), "start": None if lost else at, "end": end})
        at = at if end is None else end
    return entries


def _end(source: bytes, at: int, piece: bytes, *, is_bos: bool) -> int | None:
    """Where the token that begins at byte `at` ends; None when it isn't there."""
    if source.startswith(piece, at):
        return at + len(piece)
    if is_bos:
        return at
    if piece.startswith(b" ") and source.startswith(piece[1:], at):
        return at + len(piece) - 1
    return None
