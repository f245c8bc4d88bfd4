"""A Hugging Face directory in bf16 from a GGUF: transformers reads it, and writes what it read, with the tokenizer.

python -m benchmarks.peer.make_hf MODEL.gguf FOLDER
"""

from pathlib import Path

import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(gguf: Path, folder: Path) -> None:
    """Needs no network: what it needs is in the GGUF."""
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    typer.run(main)
