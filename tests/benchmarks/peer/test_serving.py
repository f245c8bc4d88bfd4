"""Contests over HTTP: fresh prompts each round, the same for all, and llama-server in several settings."""

from pathlib import Path

import pytest

from benchmarks.peer import serving
from benchmarks.peer.contests import Contest
from benchmarks.peer.formats import Places
from benchmarks.peer.lineup import Lineup
from benchmarks.peer.servers import Command, Fleet
from benchmarks.peer.serving import bursts, llama_server, start

Asked = list[tuple[str, dict[str, int]]]


@pytest.fixture
def line(tmp_path: Path) -> Lineup:
    (tmp_path / "llama.cpp" / "bin").mkdir(parents=True)
    (tmp_path / "llama.cpp" / "bin" / "llama-server").touch()
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "smol.Q8_0.gguf").touch()
    return Lineup(Places(tmp_path), Fleet(), Path("smol.gguf"), None, 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Which server got which burst."""
    found: Asked = []

    def burst(url: str, **sizes: int) -> dict[str, float]:
        found.append((url, sizes))
        return {"tok_s": 1.0}

    monkeypatch.setattr(serving, "burst", burst)
    monkeypatch.setattr(Fleet, "url", lambda fleet, name, command: name)
    return found


def by_id(line: Lineup) -> dict[str, Contest]:
    return {each.id: each for each in bursts(line)}


def test_bursts_bring_new_prompts_each_time_and_all_servers_the_same(line: Lineup, asked: Asked) -> None:
    contest = by_id(line)["http-shared"]
    for contender in (contest.ours, contest.theirs[0]):
        contender.measure()
        contender.measure()
    seeds = [sizes.pop("seed") for _, sizes in asked]
    assert seeds[0] != seeds[1]
    assert seeds[:2] == seeds[2:]
    assert asked[0] == ("kvell", {"clients": 16, "words": 640, "new": 32, "shared": 512})
    assert asked[2][0] == contest.theirs[0].setting


def test_no_two_contests_bring_the_same_prompts(line: Lineup, asked: Asked) -> None:
    for contest in by_id(line).values():
        contest.ours.measure()
    assert len({sizes["seed"] for _, sizes in asked}) == 3


def test_the_engine_alone_gets_what_the_server_got(line: Lineup, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **given: object) -> dict[str, float]:
        commands.append(command)
        return {"tok_s": 1.0}

    monkeypatch.setattr("benchmarks.peer.lineup.json_of", run)
    contest = by_id(line)["http-16"]
    for _ in range(2):
        contest.ours.measure()
        contest.references[0].measure()
    for (_, sizes), command in zip(asked, commands, strict=True):
        assert command[3] == "arrivals"
        assert dict(zip(command[5::2], command[6::2], strict=True)) == {
            "--clients": str(sizes["clients"]),
            "--input-tokens": str(sizes["words"]),
            "--output-tokens": str(sizes["new"]),
            "--shared-prefix-tokens": "0",
            "--seed": str(sizes["seed"]),
            "--threads": "2",
        }


def test_llama_server_is_tried_in_several_settings(line: Lineup) -> None:
    settings = [each.setting for each in by_id(line)["http-1"].theirs]
    assert settings == list(serving.LLAMA_SETTINGS)
    command = llama_server(line, "Q8_0, flash attention on, passive waits")
    assert command.env == {"OMP_WAIT_POLICY": "PASSIVE"}
    words = command.arguments(8123)
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert (options["-fa"], options["-np"], options["-c"], options["--port"]) == ("on", "16", "16384", "8123")


def test_a_start_is_timed_to_its_first_token_and_the_server_ended(
    line: Lineup, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Command] = []

    class Quick:
        def __init__(self, command: Command) -> None:
            self.command = command

        def __enter__(self) -> "Quick":
            return self

        def __exit__(self, *error: object) -> None:
            ended.append(self.command)

        def first_token_seconds(self, timeout_s: float) -> float:
            return 2.0 if self.command.ready_path == "/ready" else 0.5

    monkeypatch.setattr(serving, "Server", Quick)
    contest = start(line)
    assert contest.ours.measure() == {"first_token_s": 2.0, "starts_per_s": 0.5}
    assert contest.theirs[0].measure() == {"first_token_s": 0.5, "starts_per_s": 2.0}
    assert len(ended) == 2
