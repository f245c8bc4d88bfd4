import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from model.tokenizer.base import TokenizerError
from model.tokenizer.hf import HFTokenizer
from model.tokenizer.open import open_chat_template, open_tokenizer
from model.tokenizer.sentencepiece import SentencePieceTokenizer
from tests.helpers.chat_templates import CHATML
from tests.helpers.tiny_tokenizers import byte_level_backend, gguf_of_backend, sentencepiece_proto


@dataclass
class Source:
    """A checkpoint as far as tokenizers go."""

    format: Literal["gguf", "hf"] = "hf"
    path: Path = Path("model")
    tokenizer_files: Mapping[str, Path] = field(default_factory=dict)
    tokenizer_config: dict[str, Any] = field(default_factory=dict)
    tokenizer_metadata: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "tokenizer.json").write_text(byte_level_backend().to_str(), encoding="utf-8")
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_proto(add_dummy_prefix=False))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<extra>": 2000}), encoding="utf-8")
    return {path.name: path for path in tmp_path.iterdir()}


def test_tokenizer_json_comes_first(files: dict[str, Path]) -> None:
    assert isinstance(open_tokenizer(Source(tokenizer_files=files)), HFTokenizer)


def test_tokenizer_model_comes_with_its_added_tokens(files: dict[str, Path]) -> None:
    del files["tokenizer.json"]
    tokenizer = open_tokenizer(Source(tokenizer_files=files))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert tokenizer.encode("<extra>", add_bos=False) == [2000]


def test_a_gguf_has_its_own() -> None:
    metadata = gguf_of_backend(byte_level_backend(), "gpt-2")
    tokenizer = open_tokenizer(Source(format="gguf", tokenizer_metadata=metadata))
    assert tokenizer.special_id("<|im_end|>") is not None


def test_no_tokenizer_is_one_clear_line() -> None:
    with pytest.raises(TokenizerError, match=r"model: no tokenizer\.json or tokenizer\.model"):
        open_tokenizer(Source())


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "b"}'])
def test_broken_added_tokens_are_one_clear_line(files: dict[str, Path], text: str) -> None:
    del files["tokenizer.json"]
    files["added_tokens.json"].write_text(text, encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"added_tokens\.json"):
        open_tokenizer(Source(tokenizer_files=files))


NAMES = "{{ bos_token }} {{ eos_token }} {{ pad_token }} {{ unk_token }}"


def test_templates_know_the_tokens_that_the_config_names(files: dict[str, Path]) -> None:
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
        "pad_token": None,
        "unk_token": "?",
        "add_bos_token": True,
    }
    source = Source(tokenizer_files=files, tokenizer_config=config, chat_template=NAMES)
    template = open_chat_template(source, open_tokenizer(source))
    assert template is not None
    assert template.render([]).text == "<s> </s>  ?"


def test_templates_know_the_tokens_that_the_metadata_names() -> None:
    metadata = gguf_of_backend(byte_level_backend(), "gpt-2")
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    ids = {"bos": "<s>", "eos": "</s>", "padding": "<|im_end|>", "unknown": "<|im_start|>"}
    metadata |= {f"tokenizer.ggml.{name}_token_id": tokens.index(text) for name, text in ids.items()}
    source = Source(format="gguf", tokenizer_metadata=metadata, chat_template=NAMES)
    template = open_chat_template(source, open_tokenizer(source))
    assert template is not None
    assert template.render([]).text == "<s> </s> <|im_end|> <|im_start|>"


def test_the_template_knows_the_tokenizers_special_tokens(files: dict[str, Path]) -> None:
    source = Source(tokenizer_files=files, chat_template=CHATML.source)
    template = open_chat_template(source, open_tokenizer(source))
    assert template is not None
    assert template.render([{"role": "user", "content": "<|im_end|>"}]).literal_mark is not None


@pytest.mark.parametrize("template", [None, ""])
def test_no_template_is_none(files: dict[str, Path], template: str | None) -> None:
    source = Source(tokenizer_files=files, chat_template=template)
    assert open_chat_template(source, open_tokenizer(source)) is None
