"""The same weights in each peer's own format, all made from one GGUF, so that everyone runs the same model.

Converters are the peers' own. Knows paths and commands; a format that is there already is not made again.
"""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer.processes import output_of

CONVERT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the peers are: a folder with llama.cpp/bin and one virtual environment per Python library, and formats."""

    root: Path

    @property
    def llama_bin(self) -> Path:
        """llama.cpp's tools."""
        return self.root / "llama.cpp" / "bin"

    def python(self, peer: str) -> Path:
        """The interpreter of a peer's environment, which may not exist."""
        return self.root / peer / "bin" / "python"

    def has(self, peer: str) -> bool:
        """Whether the peer's install came to its end."""
        return (self.root / peer / ".installed").exists()

    @property
    def env(self) -> dict[str, str]:
        """For peers: they have all they need."""
        return {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Formats:
    """Makes formats of one GGUF under a folder, when they are first asked for. All raise MeasureFailed."""

    places: Places
    gguf: Path

    def _made(self, name: str, make: Callable[[Path], Sequence[str]], *, env: dict[str, str] | None = None) -> Path:
        """The file or folder of this name; made under another name first, so that half of one is never used."""
        final = self.places.root / "formats" / f"{self.gguf.stem}.{name}"
        if final.exists():
            return final
        partial = final.with_name(f"partial-{final.name}")
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.parent.mkdir(parents=True, exist_ok=True)
        output_of(make(partial), timeout_s=CONVERT_SECONDS, env=self.places.env | (env or {}))
        partial.rename(final)
        return final

    def gguf_as(self, kind: str) -> Path:
        """Another type of GGUF, from the first one's own numbers: Q8_0, F16, BF16, Q4_0."""
        tool = str(self.places.llama_bin / "llama-quantize")
        return self._made(f"{kind}.gguf", lambda to: [tool, "--allow-requantize", str(self.gguf), str(to), kind])

    def hf(self) -> Path:
        """A Hugging Face directory in bf16."""
        return self._made("hf", lambda to: [sys.executable, "-m", "benchmarks.peer.make_hf", str(self.gguf), str(to)])

    def openvino(self, kind: str) -> Path:
        """int8, or int4 with groups of 32."""
        python = self.places.python("openvino")
        tool = [str(python.with_name("optimum-cli")), "export", "openvino", "--model", str(self.hf())]
        more = ["--group-size", "32", "--ratio", "1.0"] if kind == "int4" else []
        task = ["--task", "text-generation-with-past", "--weight-format", kind, *more]
        return self._made(f"openvino-{kind}", lambda to: [*tool, *task, str(to)])

    def ctranslate2(self) -> Path:
        """int8."""
        tool = str(self.places.python("ctranslate2").with_name("ct2-transformers-converter"))
        return self._made(
            "ctranslate2",
            lambda to: [tool, "--model", str(self.hf()), "--output_dir", str(to), "--quantization", "int8"],
        )

    def onnxruntime(self) -> Path:
        """int4, by its model builder."""
        tool = [str(self.places.python("onnxruntime")), "-m", "onnxruntime_genai.models.builder"]
        return self._made(
            "onnxruntime-int4",
            lambda to: [*tool, "-i", str(self.hf()), "-o", str(to), "-p", "int4", "-e", "cpu", "-c", f"{to}-cache"],
        )
