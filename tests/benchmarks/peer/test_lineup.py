"""The contests: every row has one, what is not installed is left out, and each does what its row says."""

import math
from pathlib import Path

import pytest

from benchmarks.ceilings import Ceilings
from benchmarks.peer import lineup
from benchmarks.peer.contests import Contest
from benchmarks.peer.formats import Places
from benchmarks.peer.lineup import Lineup, contests
from benchmarks.peer.rows import PEERS, ROWS
from benchmarks.peer.servers import Command, Fleet


def make(root: Path, *installed: str, gemma: bool = True) -> Lineup:
    for peer in installed:
        (root / peer / "bin").mkdir(parents=True)
        (root / peer / ".installed").touch()
    if "llama.cpp" in installed:
        for tool in ("llama-batched-bench", "llama-server"):
            (root / "llama.cpp" / "bin" / tool).touch()
    return Lineup(Places(root), Fleet(), Path("smol.gguf"), Path("gemma.gguf") if gemma else None, 2)


def by_id(line: Lineup) -> dict[str, Contest]:
    return {each.id: each for each in contests(line)}


def test_every_row_has_its_contest_and_its_reference(tmp_path: Path) -> None:
    found = by_id(make(tmp_path))
    for row in ROWS:
        contest = found[row.contest]
        if row.against not in (PEERS, None):
            assert row.against in [each.name for each in contest.references]
    assert set(found) == {row.contest for row in ROWS}


def test_without_peers_nobody_is_asked_and_without_gemma_its_contests_are_left_out(tmp_path: Path) -> None:
    found = by_id(make(tmp_path, gemma=False))
    assert not any(each.theirs for each in found.values())
    assert not any(name.startswith("gemma") for name in found)


def test_each_installed_peer_has_all_its_settings(tmp_path: Path) -> None:
    found = by_id(make(tmp_path, "llama.cpp", "openvino", "ctranslate2", "onnxruntime"))
    names = [each.name for each in found["batch-16"].theirs]
    assert names == [
        "llama.cpp same GGUF, flash attention on",
        "llama.cpp same GGUF, flash attention off",
        "llama.cpp Q8_0, flash attention on",
        "llama.cpp Q8_0, flash attention off",
        "openvino int8",
        "openvino int4",
        "ctranslate2 int8",
        "onnxruntime int4",
    ]
    assert all(each.peer == "llama.cpp" for each in found["batch-32"].theirs)
    assert {each.setting.split(",")[0] for each in found["decode-bf16"].theirs} == {"F16", "BF16"}
    assert [each.peer for each in found["http-16"].theirs] == ["llama-server"] * 3
    assert all(len({each.name for each in contest.theirs}) == len(contest.theirs) for contest in found.values())


def test_our_measurements_ask_for_what_the_row_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(lineup, "json_of", lambda command, **given: asked.append(command[2:]) or {"tok_s": 1.0})
    found = by_id(make(tmp_path))
    for name in ("decode-q4", "batch-32", "prompt-4096", "gemma-16"):
        assert found[name].ours.measure() == {"tok_s": 1.0}
    module, threads = "benchmarks.peer.ours", ["--threads", "2"]
    assert asked == [
        [module, "decode", "smol.gguf", "--sequences", "1", "--prompt", "1", "--new", "128", *threads],
        [module, "decode", "smol.gguf", "--sequences", "32", "--prompt", "128", "--new", "64", *threads],
        [module, "prompt", "smol.gguf", "--tokens", "4096", *threads],
        [module, "decode", "gemma.gguf", "--sequences", "16", "--prompt", "128", "--new", "64", *threads],
    ]


def test_a_librarys_script_runs_in_its_own_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], **given: object) -> dict[str, float]:
        asked.append(command)
        return {"tok_s": 8.0, "prompt_tok_s": 600.0}

    monkeypatch.setattr(lineup, "json_of", answer)
    (tmp_path / "formats" / "smol.ctranslate2").mkdir(parents=True)
    found = by_id(make(tmp_path, "ctranslate2"))
    assert found["prompt-512"].theirs[0].measure() == {"tok_s": 600.0}
    assert found["batch-16"].theirs[0].measure() == {"tok_s": 8.0}
    assert asked[0][:3] == [str(tmp_path / "ctranslate2/bin/python"), "-m", "benchmarks.peer.in_ctranslate2"]
    assert '"prompt": 512, "new": 0' in asked[0][3]
    assert '"sequences": 16, "prompt": 128, "new": 64' in asked[1][3]


def test_the_ceiling_is_in_tokens_of_this_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineup, "bytes_per_token", lambda model: 100_000_000)
    monkeypatch.setattr(lineup, "measure_ceilings", lambda threads, size: Ceilings(threads, 17.0, 21.0, 1, 1, 1))
    figures = by_id(make(tmp_path))["decode-q4"].references[0].measure()
    assert math.isclose(figures["tok_s"], 170.0)
    assert math.isclose(figures["own_tok_s"], 210.0)


def test_our_server_starts_with_its_defaults(tmp_path: Path) -> None:
    command: Command = make(tmp_path).our_server()
    words = command.arguments(8123)
    assert words[-4:] == ["--port", "8123", "--threads", "2"]
    assert "serve" in words
    assert command.ready_path == "/ready"
