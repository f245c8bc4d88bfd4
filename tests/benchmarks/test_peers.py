"""The command: what is measured where, what is kept, what is said of peers that aren't there."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks import peers
from benchmarks.peer import lineup, results
from benchmarks.peer.contests import Contender, Contest, Figures, MeasureFailed


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """What each contender will reach, run after run; two contests of the real table."""
    given = {"kvell": [100.0, 120.0, 110.0], "llama.cpp Q8_0": [50.0, 55.0, 45.0, 40.0]}

    def contender(peer: str, setting: str) -> Contender:
        def measure() -> Figures:
            left = given[f"{peer} {setting}".strip()]
            if not left:
                raise MeasureFailed("no more figures")
            return {"tok_s": left.pop(0)}

        return Contender(peer, setting, measure)

    def two(line: lineup.Lineup) -> list[Contest]:
        first = Contest("decode-q4", "decode", "tok_s", contender("kvell", ""), (contender("llama.cpp", "Q8_0"),))
        return [first, Contest("batch-16", "batch", "tok_s", contender("kvell", ""))]

    monkeypatch.setattr(lineup, "contests", two)
    return given


def run(tmp_path: Path, *options: str) -> Result:
    app = peers.typer.Typer()
    app.command()(peers.main)
    (tmp_path / "smol.gguf").touch()
    where = ["--model", str(tmp_path / "smol.gguf"), "--gemma", "/nonexistent.gguf", "--peers", str(tmp_path / "peers")]
    return CliRunner().invoke(app, [*where, "--into", str(tmp_path / "run.json"), *options])


def kept(tmp_path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((tmp_path / "run.json").read_text())
    return found


@pytest.mark.usefixtures("rates")
def test_a_run_keeps_what_it_prints(tmp_path: Path) -> None:
    result = run(tmp_path, "--only", "decode", "--runs", "3")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout.splitlines()[-1])
    assert printed == kept(tmp_path)
    assert printed["peers"]["llama.cpp"] == "not installed, skipped"
    row = printed["rows"][0]
    assert (row["ours"], row["theirs"], row["ratio"]) == (110.0, 45.0, pytest.approx(2.4444))
    assert row["theirs_range"] == [40.0, 55.0]
    assert row["verdict"] == "pass"
    table = (tmp_path / "run.txt").read_text()
    assert "1 sequence, decode, Q4_1" in table
    assert "openvino: not installed, skipped" in table


def test_pieces_add_up(tmp_path: Path, rates: dict[str, list[float]]) -> None:
    assert run(tmp_path, "--only", "decode-q4", "--quick").exit_code == 0
    assert rates["kvell"] == [120.0, 110.0]
    assert run(tmp_path, "--only", "decode-q4", "--runs", "1").exit_code == 0
    assert run(tmp_path, "--only", "batch", "--runs", "1").exit_code == 0
    contests = kept(tmp_path)["contests"]
    assert isinstance(contests, dict)
    assert contests["decode-q4"]["rounds"]["kvell"] == [{"tok_s": 100.0}, {"tok_s": 120.0}]
    assert contests["batch-16"]["rounds"]["kvell"] == [{"tok_s": 110.0}]


def test_a_failure_is_said_and_costs_nothing_else(tmp_path: Path, rates: dict[str, list[float]]) -> None:
    rates["llama.cpp Q8_0"] = []
    result = run(tmp_path, "--only", "decode", "--runs", "2")
    assert result.exit_code == 0
    assert "no more figures" in (tmp_path / "run.txt").read_text()
    assert json.loads(result.stdout.splitlines()[-1])["rows"][0]["verdict"] == "no peer"


@pytest.mark.usefixtures("rates")
def test_results_of_another_commit_are_not_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, "--only", "decode", "--quick").exit_code == 0
    monkeypatch.setattr(results, "commit", lambda: "other")
    refused = run(tmp_path, "--only", "decode", "--quick")
    assert refused.exit_code == 2
    assert "--fresh" in refused.output
    assert run(tmp_path, "--only", "decode", "--quick", "--fresh").exit_code == 0
    assert kept(tmp_path)["commit"] == "other"


def test_an_unknown_contest_is_refused_by_name(tmp_path: Path) -> None:
    refused = run(tmp_path, "--only", "decode,speed")
    assert refused.exit_code == 2
    assert "speed" in refused.output
