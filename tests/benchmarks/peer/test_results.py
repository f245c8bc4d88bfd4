"""Results as a file: kept at once or not at all, continued only where they are comparable."""

import json
from pathlib import Path

import pytest

from benchmarks.peer import results
from benchmarks.peer.contests import Record
from benchmarks.peer.results import OtherRun, Results, begin, cpu_name, default_path


def make(commit: str = "abc", cpu: str = "EPYC") -> Results:
    return Results(commit, {"cpu": cpu, "cores": 2}, {"llama.cpp": "1"}, "2026-11-30")


def test_a_later_run_goes_on_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    first = make()
    first.continue_from(path)  # nothing there yet
    first.records["http-1"] = Record("kvell", "tok_s", {"llama a": {"tok_s": 1.0}}, {"kvell": [{"tok_s": 2.0}]})
    first.date = "2026-11-29"
    first.write(path)
    second = make()
    second.continue_from(path)
    assert second.records == first.records
    assert second.date == "2026-11-29"
    second.records["http-1"].rounds["kvell"].append({"tok_s": 3.0})
    second.write(path)
    written = json.loads(path.read_text())
    assert written["contests"]["http-1"]["rounds"]["kvell"] == [{"tok_s": 2.0}, {"tok_s": 3.0}]
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize(("commit", "cpu"), [("other", "EPYC"), ("abc", "Xeon")])
def test_another_commit_or_machine_is_not_mixed_in(tmp_path: Path, commit: str, cpu: str) -> None:
    make(commit, cpu).write(tmp_path / "run.json")
    with pytest.raises(OtherRun, match=f"{commit} on {cpu}"):
        make().continue_from(tmp_path / "run.json")


def test_tries_can_be_taken_from_an_older_commit_but_no_rounds(tmp_path: Path) -> None:
    old = make("old")
    for name in ("http-1", "http-16"):
        old.records[name] = Record("kvell", "tok_s", {"llama a": {"tok_s": 1.0}}, {"kvell": [{"tok_s": 2.0}]})
    old.write(tmp_path / "old.json")
    new = make("new")
    new.records["http-16"] = Record("kvell", "tok_s", {"llama b": {"tok_s": 3.0}})
    new.take_tries(tmp_path / "old.json")
    assert new.records["http-1"] == Record("kvell", "tok_s", {"llama a": {"tok_s": 1.0}})
    assert new.records["http-16"].tries == {"llama b": {"tok_s": 3.0}}


def test_now_and_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = begin({"llama.cpp": "1"}, threads=2)
    assert found.machine["threads"] == 2
    assert found.machine["cores"] >= 1
    assert len(found.commit.removesuffix("-changed")) >= 7
    monkeypatch.setattr(results, "ROOT", Path("/"))
    assert results.commit() == "unknown"


def test_the_file_is_named_by_date_and_commit() -> None:
    assert default_path(make()).name == "2026-11-30-abc.json"


def test_the_processor_is_named_as_the_system_names_it() -> None:
    assert cpu_name("processor : 0\nmodel name\t: AMD EPYC: 7\nmodel name\t: other") == "AMD EPYC: 7"
    assert cpu_name("")
