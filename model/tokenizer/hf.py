"""A tokenizer of the `tokenizers` library behind our face, and loading it from tokenizer.json.

The library matches every added token inside any text, special ones too. Here special tokens are switched off for
matching (`encode_special_tokens`, under which a special token's text is ordinary text) and each is entered a second
time as an ordinary added token, spelled with a guard character in front. A rendered template gets that guard put
before the special tokens that count, so both kinds of text take the library's own path, spaces and all.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from model.tokenizer import pieces
from model.tokenizer.base import TokenizerError, check_text
from model.tokenizer.special import SpecialFinder, without

GUARD = (
    "\ufdd0"  # a noncharacter: Unicode promises that no text in interchange has it (a user may send it all the same)
)
_GUARD = re.compile(GUARD)
_AFTER_GUARD = re.compile(f"(?<={GUARD})")
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class HFTokenizer:
    """Takes the backend over and changes its settings: no truncation, no padding, no special tokens in text."""

    def __init__(
        self,
        backend: Backend,
        *,
        bos: str | None,
        eos: Iterable[str],
        adds_bos: bool,
        unused_ids: Iterable[int] = (),
    ) -> None:
        """unused_ids: entries that only fill the vocabulary up; they stand for nothing."""
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        self._spelling, self.adds_space = _decoding(backend)
        added = backend.get_added_tokens_decoder()
        self.vocab_size = max(backend.get_vocab_size(), max(added, default=-1) + 1)
        self._added = {token_id: token.content for token_id, token in added.items() if not token.special}
        self.special_tokens = {token.content: token_id for token_id, token in added.items() if token.special}
        self._special_ids = {token_id: text for text, token_id in self.special_tokens.items()}
        self._silent = self._special_ids.keys() | set(unused_ids)
        self._finder = SpecialFinder(self.special_tokens)
        self._guarded = _add_guarded(backend, [token for token in added.values() if token.special])
        self.bos_id = None if bos is None else backend.token_to_id(bos)
        self.eos_ids = frozenset(i for text in eos if (i := backend.token_to_id(text)) is not None)
        self.adds_bos = adds_bos and self.bos_id is not None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        check_text(text)
        ids = [self.bos_id] if add_bos and self.adds_bos and self.bos_id is not None else []
        # A guard that a user typed is cut off from special-token text behind it, lest the two spell a guarded token.
        for part in _AFTER_GUARD.split(text) if self._forges(text) else [text]:
            ids += self._ids(part)
        return ids

    def encode_template(self, text: str, *, literal_mark: str | None = None) -> list[int]:
        check_text(text)
        if self._forges(without(text, literal_mark)):  # section by section is safe, but for tokens that strip spaces
            sections = self._finder.sections(text, mark=literal_mark)
            parts = ([part] if isinstance(part, int) else self.encode(part, add_bos=False) for part in sections)
            return [token_id for part in parts for token_id in part]
        guarded, position = [], 0
        for found in self._finder.find(text, mark=literal_mark):
            guarded += [without(text[position : found.start], literal_mark), GUARD, text[found.start : found.end]]
            position = found.end
        guarded.append(without(text[position:], literal_mark))
        return [self._guarded.get(i, i) for i in self._ids("".join(guarded))]

    def _forges(self, text: str) -> bool:
        """Whether the text has a guard with a special token's text behind it, which only an attacker writes."""
        return GUARD in text and any(self._finder.length_at(text, g.end()) for g in _GUARD.finditer(text))

    def piece(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.vocab_size or token_id in self._silent:
            return b""
        if token_id in self._added:
            return self._added_piece(self._added[token_id])
        token = self._backend.id_to_token(token_id)
        return b"" if token is None else self._spelling(token)

    def name(self, token_id: int) -> str:
        return self._special_ids.get(token_id) or self.piece(token_id).decode("utf-8", errors="replace")

    def special_id(self, text: str) -> int | None:
        return self.special_tokens.get(text)

    def _ids(self, text: str) -> list[int]:
        # of the library's ways to encode, the batch ones alone let go of the interpreter lock while they work
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def _added_piece(self, content: str) -> bytes:
        """Added tokens are spelled as text, except that SentencePiece's kind may spell spaces its own way."""
        return pieces.plain(content) if self._spelling is pieces.byte_level else pieces.metaspace(content)


def _add_guarded(backend: Backend, special: list[AddedToken]) -> dict[int, int]:
    """Enter each special token once more with the guard in front. New id -> the token's own id.

    Without single_word, which no chat model's special tokens have: what a template writes counts.
    """
    backend.add_tokens(
        [
            AddedToken(
                GUARD + token.content,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
                special=False,
            )
            for token in special
        ]
    )
    pairs = ((backend.token_to_id(GUARD + token.content), backend.token_to_id(token.content)) for token in special)
    return {new: old for new, old in pairs if new is not None and old is not None}


def _decoding(backend: Backend) -> tuple[pieces.Spelling, bool]:
    """How the backend's decoder spells tokens, and whether it takes a first space away. Raises TokenizerError."""
    if backend.decoder is None:
        return pieces.plain, False
    steps = _flat(json.loads(backend.decoder.__getstate__()), "decoders")
    kinds = {step["type"] for step in steps}
    if unknown := kinds - {"ByteLevel", "ByteFallback", "Metaspace", "Replace", "Fuse", "Strip"}:
        raise TokenizerError(f"tokenizer.json: decoder {min(unknown)!r} is not supported")
    if "ByteLevel" in kinds:
        return pieces.byte_level, False
    spelling = pieces.metaspace_with_bytes if "ByteFallback" in kinds else pieces.metaspace
    strips = any(step["type"] == "Strip" and step["content"] == " " and step["start"] > 0 for step in steps)
    return spelling, strips or any(step.get("prepend_scheme", "never") != "never" for step in steps)


def _flat(step: dict[str, Any], inner: str) -> list[dict[str, Any]]:
    """The steps of a possibly nested Sequence of a tokenizer.json, in order."""
    if step["type"] != "Sequence":
        return [step]
    return [leaf for part in step[inner] for leaf in _flat(part, inner)]


def load(path: Path, config: Mapping[str, Any]) -> HFTokenizer:
    """tokenizer.json, with what tokenizer_config.json (and special_tokens_map.json) say. Raises TokenizerError."""
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path}: not a tokenizer.json that can be read: {error}") from error
    backend.add_tokens(_missing(config, backend))
    backend.add_special_tokens(_special(config))
    bos = token_text(config.get("bos_token"))
    adds_bos = config.get("add_bos_token")
    if not isinstance(adds_bos, bool):
        adds_bos = bos is not None and _begins_with(backend) == bos
    return HFTokenizer(backend, bos=bos, eos=filter(None, [token_text(config.get("eos_token"))]), adds_bos=adds_bos)


def _begins_with(backend: Backend) -> str | None:
    """The special token that the post-processor puts before a single text, if any."""
    if backend.post_processor is None:
        return None
    for step in _flat(json.loads(backend.post_processor.__getstate__()), "processors"):
        if step["type"] == "TemplateProcessing" and step["single"]:
            name: str | None = step["single"][0].get("SpecialToken", {}).get("id")
            return name
    return None


def _missing(config: Mapping[str, Any], backend: Backend) -> list[AddedToken]:
    """Entries of added_tokens_decoder that tokenizer.json lacks, by id."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    entries = sorted((config.get("added_tokens_decoder") or {}).items(), key=lambda entry: int(entry[0]))
    return [_added_token(entry) for _, entry in entries if entry["content"] not in present]


def _special(config: Mapping[str, Any]) -> list[AddedToken]:
    """Tokens that the config calls special, whatever tokenizer.json says of them."""
    extra = [config.get("additional_special_tokens"), config.get("extra_special_tokens")]
    listed = [token for tokens in extra for token in (tokens.values() if isinstance(tokens, dict) else tokens or [])]
    flagged = [entry for entry in (config.get("added_tokens_decoder") or {}).values() if entry.get("special")]
    named = [config.get(name) for name in _NAMED]
    return [_added_token(entry, special=True) for entry in [*named, *listed, *flagged] if token_text(entry)]


def _added_token(entry: Any, *, special: bool | None = None) -> AddedToken:
    """An added token as the configs write it: its text, or an object with text and flags."""
    flags = dict(entry) if isinstance(entry, dict) else {"content": entry}
    special = bool(flags.get("special")) if special is None else special
    return AddedToken(
        flags["content"],
        single_word=bool(flags.get("single_word")),
        lstrip=bool(flags.get("lstrip")),
        rstrip=bool(flags.get("rstrip")),
        normalized=bool(flags.get("normalized", not special)),
        special=special,
    )


def token_text(entry: Any) -> str | None:
    """The text of a token that a config names, as a string or as an object."""
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) and content else None
