"""llama.cpp's tools: what is asked of them, and what is read from what they print."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.peer.contests import MeasureFailed
from benchmarks.peer.llama import Llama, parse_batched, parse_bench, parse_perplexity

# A stand-in for any of the tools: writes down how it was called and prints what is told by a file beside it.
TOOL = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__)
here.with_suffix(".called").write_text(json.dumps(sys.argv[1:]))
print("loading the model", file=sys.stderr)
print(here.with_suffix(".says").read_text(), file=sys.stdout)
"""


@pytest.fixture
def llama(tmp_path: Path) -> Llama:
    for name in ("llama-bench", "llama-batched-bench", "llama-perplexity"):
        tool = tmp_path / name
        tool.write_text(TOOL.format(python=sys.executable))
        tool.chmod(0o755)
    return Llama(tmp_path, 3)


def says(llama: Llama, tool: str, text: str) -> None:
    (llama.bin / f"{tool}.says").write_text(text)


def called(llama: Llama, tool: str) -> dict[str, str]:
    """The options by name."""
    words = json.loads((llama.bin / f"{tool}.called").read_text())
    return dict(zip(words[::2], words[1::2], strict=True))


def test_one_sequence_is_asked_for_by_new_tokens_alone(llama: Llama) -> None:
    says(llama, "llama-bench", json.dumps([{"n_gen": 128, "avg_ts": 74.25, "stddev_ts": 0.0}]))
    assert llama.decode(Path("m.gguf"), tokens=128, flash=True) == {"tok_s": 74.25}
    options = called(llama, "llama-bench")
    assert (options["-p"], options["-n"], options["-fa"], options["-t"], options["-m"]) == (
        "0",
        "128",
        "1",
        "3",
        "m.gguf",
    )


def test_a_prompt_is_asked_for_without_new_tokens(llama: Llama) -> None:
    says(llama, "llama-bench", json.dumps([{"avg_ts": 405.5}]))
    assert llama.prompt(Path("m.gguf"), tokens=512, flash=False) == {"tok_s": 405.5}
    options = called(llama, "llama-bench")
    assert (options["-p"], options["-n"], options["-fa"]) == ("512", "0", "0")


def test_a_batch_has_room_for_all_its_sequences(llama: Llama) -> None:
    says(llama, "llama-batched-bench", '\n{"pp": 128, "tg": 64, "pl": 16, "speed_pp": 410.5, "speed_tg": 146.5}\n')
    figures = llama.batch(Path("m.gguf"), sequences=16, prompt=128, new=64, flash=True)
    assert figures == {"tok_s": 146.5, "prompt_tok_s": 410.5}
    options = called(llama, "llama-batched-bench")
    assert (options["-npl"], options["-npp"], options["-ntg"], options["-c"]) == ("16", "128", "64", "3072")
    assert (options["-fa"], options["-t"], options["-tb"]) == ("on", "3", "3")


def test_a_servers_slots_share_its_context(llama: Llama) -> None:
    command = llama.server(Path("m.gguf"), 8123, slots=16, context=1024, flash=False)
    assert command[0].endswith("llama-server")
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (options["-np"], options["-c"], options["--port"], options["-fa"]) == ("16", "16384", "8123", "off")


def test_perplexity_is_read_from_what_the_tool_says_anywhere(llama: Llama) -> None:
    says(llama, "llama-perplexity", "[1]13.0,[2]14.0,\nFinal estimate: PPL = 14.1234 +/- 0.31\n")
    assert llama.perplexity(Path("m.gguf"), Path("text"), window=512, windows=40) == 14.1234
    options = called(llama, "llama-perplexity")
    assert (options["-c"], options["--chunks"], options["-f"]) == ("512", "40", "text")


@pytest.mark.parametrize("output", ["", "segmentation fault", "[]", '[{"avg_ts": 1}, {"avg_ts": 2}]', '[{"ts": 1}]'])
def test_other_output_of_llama_bench_is_refused(output: str) -> None:
    with pytest.raises(MeasureFailed, match="llama-bench"):
        parse_bench(output)


@pytest.mark.parametrize("output", ["", "{not json", '{"speed_tg": 1.0}', '{"speed_tg": 1, "speed_pp": 2}\n{}'])
def test_other_output_of_the_batched_tool_is_refused(output: str) -> None:
    with pytest.raises(MeasureFailed, match="llama-batched-bench"):
        parse_batched(output)


def test_a_perplexity_that_was_not_reached_is_refused() -> None:
    with pytest.raises(MeasureFailed, match="no estimate"):
        parse_perplexity("[1]13.0,[2]14.0,")


def test_tools_are_there_once_they_are_built(llama: Llama) -> None:
    (llama.bin / "llama-batched-bench").unlink()
    assert not llama.installed
    assert not llama.serves
    (llama.bin / "llama-batched-bench").touch()
    assert llama.installed
    (llama.bin / "llama-server").touch()
    assert llama.serves
