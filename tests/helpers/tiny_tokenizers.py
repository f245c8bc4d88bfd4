"""Tiny tokenizers made on the spot: byte-level BPE of the `tokenizers` library and SentencePiece models."""

import io
import itertools
import json
from collections.abc import Sequence

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from model.tokenizer.pieces import BYTES_BY_CHARACTER
from tests.helpers.nasty_texts import NASTY_TEXTS

PROSE = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "In the beginning there was the word, and the word was a token.",
    "def add(left, right):\n    return left + right\n",
    "One two three four five six seven eight nine ten. 12345 67890",
)
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<tool>", "\n\n\n")


def byte_level_backend(
    *, special: Sequence[str | AddedToken] = SPECIAL, added: Sequence[str] = USER_DEFINED, bos: str | None = None
) -> Tokenizer:
    """Byte-level BPE with special tokens and added ordinary ones. bos: what its post-processor puts first."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=list(BYTES_BY_CHARACTER), show_progress=False)
    backend.train_from_iterator([*PROSE, *NASTY_TEXTS], trainer)
    backend.add_special_tokens(list(special))
    backend.add_tokens([AddedToken(text, normalized=False) for text in added])
    if bos is not None:
        ids = [(bos, backend.token_to_id(bos))]
        backend.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=ids)
    return backend


def sentencepiece_proto(*, add_dummy_prefix: bool, user_defined: Sequence[str] = ("\n", "\n\n", "▁▁", "<b>")) -> bytes:
    """A SentencePiece BPE model with byte fallback, control symbols and user-defined ones."""
    file = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=itertools.chain(PROSE, [text for text in NASTY_TEXTS if len(text) > 3] * 2),
        model_writer=file,
        model_type="bpe",
        vocab_size=700,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=add_dummy_prefix,
        character_coverage=0.98,
        control_symbols=["<start>", "<end>"],
        user_defined_symbols=list(user_defined),
        minloglevel=2,
    )
    return file.getvalue()


def gguf_of_backend(backend: Tokenizer, pre: str) -> dict[str, object]:
    """What llama.cpp's converter writes for a byte-level tokenizer."""
    merges = json.loads(backend.to_str())["model"]["merges"]
    added = backend.get_added_tokens_decoder()
    size = backend.get_vocab_size()
    types = [(3 if added[i].special else 4) if i in added else 1 for i in range(size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [backend.id_to_token(i) for i in range(size)],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
    }


def gguf_of_sentencepiece(proto: bytes, *, add_space_prefix: bool) -> dict[str, object]:
    """What llama.cpp's converter writes for a SentencePiece model: spaces of user-defined symbols unescaped."""
    sp = SentencePieceProcessor()
    sp.LoadFromSerializedProto(proto)
    tokens: list[str] = []
    types: list[int] = []
    user_defined = {"\n", "\n\n", "▁▁", "<b>"}
    for i in range(sp.get_piece_size()):
        token = sp.id_to_piece(i)
        kind = 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1
        kind = 4 if token in user_defined else kind
        tokens.append(token.replace("▁", " ") if kind == 4 else token)
        types.append(kind)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-1000.0 if types[i] == 4 else sp.get_score(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": sp.bos_id(),
        "tokenizer.ggml.eos_token_id": sp.eos_id(),
        "tokenizer.ggml.unknown_token_id": sp.unk_id(),
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
    }
