"""Formats are made when they are first asked for, once, and never half."""

from pathlib import Path

import pytest

from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.formats import Formats, Places

TOOL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
for last; do :; done
to="{to}"
echo weights > "$to"
{then}
"""


def places(tmp_path: Path, then: str = "") -> Places:
    found = Places(tmp_path / "peers")
    found.llama_bin.mkdir(parents=True)
    tool = found.llama_bin / "llama-quantize"
    tool.write_text(TOOL.format(to="$3", then=then))
    tool.chmod(0o755)
    return found


def test_a_format_is_made_once_from_the_gguf_that_was_given(tmp_path: Path) -> None:
    here = places(tmp_path)
    formats = Formats(here, Path("/models/Smol.Q4_1.gguf"))
    path = formats.gguf_as("Q8_0")
    assert path == formats.gguf_as("Q8_0")
    assert path.name == "Smol.Q4_1.Q8_0.gguf"
    assert path.read_text() == "weights\n"
    (call,) = (here.llama_bin / "calls").read_text().splitlines()
    assert call.startswith("--allow-requantize /models/Smol.Q4_1.gguf ")
    assert call.endswith(" Q8_0")


def test_half_a_format_is_never_used(tmp_path: Path) -> None:
    formats = Formats(places(tmp_path, then="exit 4"), Path("model.gguf"))
    for _ in range(2):
        with pytest.raises(MeasureFailed, match="code 4"):
            formats.gguf_as("F16")
    assert [path.name for path in (tmp_path / "peers" / "formats").iterdir()] == ["partial-model.F16.gguf"]


def test_a_peer_is_there_once_its_install_came_to_its_end(tmp_path: Path) -> None:
    here = Places(tmp_path)
    here.python("ctranslate2").parent.mkdir(parents=True)
    here.python("ctranslate2").touch()
    assert not here.has("ctranslate2")
    (tmp_path / "ctranslate2" / ".installed").touch()
    assert here.has("ctranslate2")
