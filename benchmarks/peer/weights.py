"""How many bytes of weights one token needs: what bounds a single sequence. Reads sizes only."""

import json
from pathlib import Path

from gguf import GGUFReader

GGUF_TABLE, GGUF_HEAD = "token_embd.weight", "output.weight"
HF_TABLE, HF_HEAD = "model.embed_tokens.weight", "lm_head.weight"


def bytes_per_token(model: Path) -> int:
    """Bytes of all tensors as the file has them, a .gguf file or a directory of .safetensors.

    An embedding table of which a token reads one row is left out; one that is the head too is read whole.
    """
    if model.is_dir():
        return _read(_of_safetensors(model), HF_TABLE, HF_HEAD)
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in GGUFReader(model).tensors}
    return _read(sizes, GGUF_TABLE, GGUF_HEAD)


def _of_safetensors(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tensors = {name: each["data_offsets"] for name, each in header.items() if name != "__metadata__"}
        sizes |= {name: end - begin for name, (begin, end) in tensors.items()}
    return sizes


def _read(sizes: dict[str, int], table: str, head: str) -> int:
    return sum(size for name, size in sizes.items() if name != table or head not in sizes)
