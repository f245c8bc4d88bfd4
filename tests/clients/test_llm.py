"""The command `llm` and its library, with a model of its OpenAI-compatible kind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.live_server import LiveServer

ENTRIES = """
- model_id: kvell
  model_name: tiny
  api_base: {url}/v1
- model_id: kvell-text
  model_name: tiny
  api_base: {url}/v1
  completion: true
"""


@pytest.fixture
def run(server: LiveServer, tmp_path: Path) -> object:
    """The command, with a folder of its own."""
    pytest.importorskip("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(ENTRIES.format(url=server.url))
    env = os.environ | {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}

    def call(*arguments: str) -> str:
        command = [sys.executable, "-m", "llm", *arguments]
        found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert found.returncode == 0, found.stderr
        return found.stdout.removesuffix("\n")

    return call


OPTIONS = ("-o", "max_tokens", "8", "-o", "temperature", "0")


def test_it_prompts_whole_and_streamed_alike(run: object) -> None:
    assert callable(run)
    whole = run("-m", "kvell", "hi", "-s", "Be brief.", *OPTIONS, "--no-stream")
    assert whole
    assert run("-m", "kvell", "hi", "-s", "Be brief.", *OPTIONS) == whole
    logged = json.loads(run("logs", "--json", "-n", "1"))
    assert logged[0]["output_tokens"] == 8


def test_it_goes_on_with_a_conversation(run: object, server: LiveServer) -> None:
    assert callable(run)
    first = run("-m", "kvell", "hi", *OPTIONS, "--no-stream")
    second = run("-c", "and?", *OPTIONS, "--no-stream")
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "and?"},
    ]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0}
    assert second == server.request("POST", "/v1/chat/completions", body).text().removesuffix("\n")


def test_it_completes_text(run: object) -> None:
    assert callable(run)
    assert run("-m", "kvell-text", "once", *OPTIONS)
