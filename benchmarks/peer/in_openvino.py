"""OpenVINO GenAI with continuous batching, in its own environment. See job.py."""

import time

import numpy as np
import openvino as ov
import openvino_genai as genai

from benchmarks.peer.job import Job, read_job


def main(job: Job) -> None:
    """All prompts in as few steps as they need, then steps in which every sequence gets a token."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_batched_tokens = max(job.sequences * job.prompt, 256)
    scheduler.max_num_seqs = 256
    scheduler.enable_prefix_caching = False
    pipe = genai.ContinuousBatchingPipeline(job.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": job.threads})
    run(pipe, [[5, 6, 7, 8]] * job.sequences, 2)
    prompt_seconds, new_seconds = run(pipe, job.prompts(), job.new)
    job.report(prompt_seconds=prompt_seconds, new_seconds=new_seconds)


def run(pipe: genai.ContinuousBatchingPipeline, prompts: list[list[int]], new: int) -> tuple[float, float]:
    """Seconds until all have their first token, and from then to the end."""
    config = genai.GenerationConfig()
    config.max_new_tokens = new + 1
    config.ignore_eos = True
    config.do_sample = False
    began = time.perf_counter()
    handles = [pipe.add_request(i, ov.Tensor(np.array([each])), config) for i, each in enumerate(prompts)]
    waiting = set(range(len(handles)))
    while waiting:
        pipe.step()
        waiting -= {i for i in waiting if handles[i].can_read()}
    first = time.perf_counter()
    while pipe.has_non_finished_requests():
        pipe.step()
    return first - began, time.perf_counter() - first


if __name__ == "__main__":
    main(read_job())
