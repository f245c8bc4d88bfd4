"""transformers' generate in float32 with torch's fused attention. See job.py.

Decoding is the difference of two runs: of one new token, and of many.
"""

import time

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.peer.job import Job, read_job


def main(job: Job) -> None:
    """One new token, then as many as asked for."""
    torch.set_num_threads(job.threads)
    model = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    prompts = torch.tensor(job.prompts())
    generate(model, prompts[:, :4], 2)
    prompt_seconds = generate(model, prompts, 1)
    whole = generate(model, prompts, job.new + 1) if job.new else prompt_seconds
    job.report(prompt_seconds=prompt_seconds, new_seconds=whole - prompt_seconds)


@torch.inference_mode()
def generate(model: PreTrainedModel, prompts: torch.Tensor, tokens: int) -> float:
    """Seconds for so many tokens each, prompts included."""
    began = time.perf_counter()
    ids = model.generate(  # type: ignore[operator]
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        pad_token_id=0,
    )
    seconds = time.perf_counter() - began
    assert ids.shape[1] == prompts.shape[1] + tokens, "an answer of another length"
    return seconds


if __name__ == "__main__":
    main(read_job())
