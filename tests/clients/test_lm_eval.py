"""lm-eval's `local-completions`: log-likelihoods and rolling log-likelihoods, on small tasks that the test writes.

What it computes is held against what the server says of the same prompts.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer

END = 264  # <|end|> of the tiny model: after 256 bytes, 7 merges and <|start|>
DOCS = [
    {"context": "the cat", "endings": [" on the hat", " in a hat"], "label": 0},
    {"context": "another", "endings": [" one", " anthem"], "label": 1},
    {"context": "on an é", "endings": [" and then", " in"], "label": 0},
]
CHOICES = """
task: kvell_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {docs}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{endings}}}}"
doc_to_target: label
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
ROLLING = """
task: kvell_rolling
dataset_path: json
dataset_kwargs: {{data_files: {{test: {docs}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{context}}}}{{{{endings[0]}}}}"
metric_list: [{{metric: bits_per_byte}}]
"""


@pytest.fixture(scope="module")
def results(server: LiveServer, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of both tasks found, with its samples."""
    lm_eval = pytest.importorskip("lm_eval")
    pytest.importorskip("transformers")
    tasks = pytest.importorskip("lm_eval.tasks")
    folder = tmp_path_factory.mktemp("tasks")
    docs = folder / "docs.jsonl"
    docs.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS), encoding="utf-8")
    for name, text in (("choices", CHOICES), ("rolling", ROLLING)):
        (folder / f"{name}.yaml").write_text(text.format(docs=docs), encoding="utf-8")
    found: dict[str, Any] = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "base_url": f"{server.url}/v1/completions",
            "model": "tiny",
            "tokenizer_backend": "huggingface",
            "tokenizer": str(model_dir),
            "num_concurrent": 2,
            "max_retries": 1,
            "max_length": 512,
        },
        tasks=["kvell_choices", "kvell_rolling"],
        task_manager=tasks.TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    return found


def scores(server: LiveServer, prompt: str | list[int]) -> list[float]:
    """The natural-log probabilities of a prompt's tokens after the first."""
    body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0}
    choice = server.request("POST", "/v1/completions", body).json()["choices"][0]
    return [value for value in choice["logprobs"]["token_logprobs"] if value is not None]


def ids_of(server: LiveServer, text: str) -> list[int]:
    ids: list[int] = server.request("POST", "/tokenize", {"prompt": text}).json()["tokens"]
    return ids


def test_log_likelihoods_are_those_of_the_endings(results: dict[str, Any], server: LiveServer) -> None:
    samples = sorted(results["samples"]["kvell_choices"], key=lambda sample: sample["doc_id"])
    assert len(samples) == len(DOCS)
    for doc, sample in zip(DOCS, samples, strict=True):
        for ending, answer in zip(doc["endings"], sample["filtered_resps"], strict=True):  # type: ignore[call-overload]
            whole = scores(server, f"{doc['context']}{ending}")
            cut = len(ids_of(server, str(doc["context"]))) - 1
            assert math.isclose(float(answer[0]), sum(whole[cut:]), abs_tol=1e-6)


def test_rolling_log_likelihoods_are_those_of_whole_texts(results: dict[str, Any], server: LiveServer) -> None:
    assert results["results"]["kvell_rolling"]["bits_per_byte,none"] > 0
    samples = sorted(results["samples"]["kvell_rolling"], key=lambda sample: sample["doc_id"])
    for doc, sample in zip(DOCS, samples, strict=True):
        ids = ids_of(server, f"{doc['context']}{doc['endings'][0]}")  # type: ignore[index]
        whole = scores(server, [END, *ids])  # lm-eval puts the end token before a text
        assert math.isclose(float(sample["filtered_resps"][0]), sum(whole), abs_tol=1e-6)
