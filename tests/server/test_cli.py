"""The command line's face: commands, flags and exit codes. Its help is frozen here, as scripts rely on it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from server import catalogue, chat_client
from server.catalogue import ModelUnavailable, Resolved
from server.cli import app
from server.planning import MATTER
from server.settings import SETTINGS

runner = CliRunner()

FLAGS = """
accept-terms api-key api-key-file backend block-size cors-origins device drain-timeout dtype engine-timeout help
host kv-cache-dtype kv-cache-memory log-format log-level log-prompts max-model-len
max-num-batched-tokens max-num-seqs max-waiting-requests
max-queue-seconds max-waiting-tokens metrics-compat default-timeout
open-metrics otlp-endpoint port prefix-cache prefix-cache-dir prefix-cache-size quantize
served-model-name share-prefixes sse-ping target-inter-token-ms threads tls-certfile tls-keyfile
trust-request-chat-template
"""


def help_of(*command: str) -> str:
    result = runner.invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return result.output


def test_the_commands_are_these() -> None:
    commands = re.findall(r"^  (\w+) ", help_of().partition("Commands:")[2], re.MULTILINE)
    assert sorted(commands) == ["bench", "chat", "plan", "pull", "serve", "top"]


def test_serve_s_flags_are_these() -> None:
    assert set(re.findall(r"^  --([\w-]+)", help_of("serve"), re.MULTILINE)) == set(FLAGS.split())


def test_help_names_every_setting_s_variable_default_and_range() -> None:
    text = " ".join(help_of("serve").split())
    for setting in SETTINGS:
        assert setting.env in text
        assert f"default: {setting.default}" in text


BENCH_FLAGS = """
api-key concurrency duration endpoint goodput ignore-eos model no-ignore-eos num-requests output-tokens plot
prompt-tokens rate retry-after seed shared-prefix temperature timeout url warmup help
"""


def test_bench_serve_s_flags_are_these() -> None:
    assert set(re.findall(r"--([a-z][\w-]+)", help_of("bench", "serve"))) == set(BENCH_FLAGS.split())


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("pull", {"accept-terms"}),
        ("chat", {"url", "api-key", "model", "system"}),
        ("plan", {"accept-terms", "memory", "json", *MATTER} - {"model"}),
    ],
)
def test_the_other_commands_flags_are_these(command: str, flags: set[str]) -> None:
    assert set(re.findall(r"^  --([\w-]+)", help_of(command), re.MULTILINE)) == flags | {"help"}


def test_no_command_shows_help() -> None:
    result = runner.invoke(app, [])
    assert "Usage" in result.output


@pytest.mark.parametrize("arguments", [["serve", "--prot", "1"], ["bench"], ["serve", "a", "b"], ["chat", "--url"]])
def test_a_misspelt_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


def test_pull_prints_the_path_and_nothing_else_on_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.delenv("KVELL_ACCEPT_TERMS", raising=False)

    def fake(model: str, *, accept_terms: bool, console: object) -> Resolved:
        asked.append((model, accept_terms))
        return Resolved(Path("/models/x.gguf"), "x")

    monkeypatch.setattr(catalogue, "pull", fake)
    assert runner.invoke(app, ["pull"]).stdout == "/models/x.gguf\n"
    assert runner.invoke(app, ["pull", "gemma-3-270m", "--accept-terms"]).exit_code == 0
    assert runner.invoke(app, ["pull", "gemma-3-270m"], env={"KVELL_ACCEPT_TERMS": "1"}).exit_code == 0
    assert asked == [("smollm2-135m-instruct", False), ("gemma-3-270m", True), ("gemma-3-270m", True)]


def test_a_model_that_can_not_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(model: str, **given: object) -> Resolved:
        raise ModelUnavailable("no such model")

    monkeypatch.setattr(catalogue, "pull", fake)
    result = runner.invoke(app, ["pull", "x"])
    assert (result.exit_code, result.stderr) == (1, "kvell: no such model\n")


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(model: str, **given: object) -> Resolved:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "pull", fake)
    assert runner.invoke(app, ["pull", "x"]).exit_code == 130


def test_chat_passes_on_where_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(chat_client, "run", lambda url, **given: asked.append((url, given)))
    runner.invoke(app, ["chat", "--url", "http://x:1", "--system", "be kind"], env={"KVELL_API_KEY": "k"})
    assert asked == [("http://x:1", {"api_key": "k", "model": None, "system": "be kind"})]


def test_a_bad_setting_is_exit_code_2_before_anything_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "pull", lambda *a, **k: pytest.fail("fetched"))
    result = runner.invoke(app, ["serve", "--port", "eighty"])
    assert result.exit_code == 2
    assert '--port (KVELL_PORT) is "eighty"' in result.stderr
