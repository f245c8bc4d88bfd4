"""CTranslate2 with a static batch, in its own environment. See job.py.

It reports no times of its own, so decoding is the difference of two runs: of one new token, and of many.
"""

import json
import time
from pathlib import Path

import ctranslate2

from benchmarks.peer.job import Job, read_job


def main(job: Job) -> None:
    """One new token, then as many as asked for."""
    generator = ctranslate2.Generator(
        job.model, device="cpu", compute_type=job.setting or "int8", inter_threads=1, intra_threads=job.threads
    )
    names = json.loads((Path(job.model) / "vocabulary.json").read_text(encoding="utf-8"))
    prompts = [[names[token] for token in each] for each in job.prompts()]
    generate(generator, [each[:4] for each in prompts], 2)
    prompt_seconds = generate(generator, prompts, 1)
    whole = generate(generator, prompts, job.new + 1) if job.new else prompt_seconds
    job.report(prompt_seconds=prompt_seconds, new_seconds=whole - prompt_seconds)


def generate(generator: ctranslate2.Generator, prompts: list[list[str]], tokens: int) -> float:
    """Seconds for so many tokens each, prompts included."""
    began = time.perf_counter()
    results = generator.generate_batch(
        prompts, max_length=tokens, min_length=tokens, sampling_topk=1, include_prompt_in_result=False
    )
    seconds = time.perf_counter() - began
    assert all(len(each.sequences_ids[0]) == tokens for each in results), "an answer of another length"
    return seconds


if __name__ == "__main__":
    main(read_job())
