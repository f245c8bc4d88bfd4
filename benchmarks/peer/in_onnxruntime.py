"""ONNX Runtime GenAI with a static batch, in its own environment. See job.py."""

import json
import time

import numpy as np
import onnxruntime_genai as genai

from benchmarks.peer.job import Job, read_job


def main(job: Job) -> None:
    """The prompts, then steps in which every sequence gets a token."""
    config = genai.Config(job.model)
    threads = {"model": {"decoder": {"session_options": {"intra_op_num_threads": job.threads}}}}
    config.overlay(json.dumps(threads))
    model = genai.Model(config)
    run(model, [[305, 306, 307, 308]] * job.sequences, 2)
    prompt_seconds, new_seconds = run(model, job.prompts(), job.new)
    job.report(prompt_seconds=prompt_seconds, new_seconds=new_seconds)


def run(model: genai.Model, prompts: list[list[int]], new: int) -> tuple[float, float]:
    """Seconds until all have their first token, and from then to the end."""
    length = len(prompts[0]) + new + 1
    params = genai.GeneratorParams(model)
    params.set_search_options(
        batch_size=len(prompts), max_length=length, min_length=length, do_sample=False, past_present_share_buffer=True
    )
    generator = genai.Generator(model, params)
    began = time.perf_counter()
    generator.append_tokens(np.array(prompts, dtype=np.int32))
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(new):
        generator.generate_next_token()
    return first - began, time.perf_counter() - first


if __name__ == "__main__":
    main(read_job())
