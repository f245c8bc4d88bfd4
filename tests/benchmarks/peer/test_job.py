"""Jobs for peers that are libraries: they arrive whole, and their prompts are the same everywhere."""

import json

import pytest

from benchmarks.peer import job
from benchmarks.peer.job import Job, read_job

JOB = Job("folder with spaces", sequences=3, prompt=5, new=7, threads=2, vocab_size=400, setting="int8")


def test_a_job_survives_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.sys, "argv", ["in_peer", JOB.to_argument()])  # type: ignore[attr-defined]
    assert read_job() == JOB


def test_prompts_are_the_same_each_time_and_differ_from_each_other() -> None:
    prompts = JOB.prompts()
    assert prompts == JOB.prompts()
    assert [len(prompt) for prompt in prompts] == [5, 5, 5]
    assert len({tuple(prompt) for prompt in prompts}) == 3
    assert all(300 <= token < 400 for prompt in prompts for token in prompt)


def test_rates_count_all_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    JOB.report(prompt_seconds=0.5, new_seconds=2.0)
    assert json.loads(capsys.readouterr().out) == {"prompt_tok_s": 30.0, "tok_s": 10.5}


def test_a_prompt_alone_has_no_rate_of_new_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    Job("m", sequences=1, prompt=8, new=0, threads=1, vocab_size=400).report(prompt_seconds=2.0, new_seconds=0.0)
    assert json.loads(capsys.readouterr().out) == {"prompt_tok_s": 4.0}
