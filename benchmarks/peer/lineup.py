"""The contests: which programs with which settings are measured in each. Knows the peers' faces, and no figures."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.ceilings import measure as measure_ceilings
from benchmarks.peer import serving
from benchmarks.peer.contests import Contender, Contest, Figures
from benchmarks.peer.formats import Formats, Places
from benchmarks.peer.job import Job
from benchmarks.peer.llama import Llama
from benchmarks.peer.processes import busy_neighbour, json_of
from benchmarks.peer.servers import MODEL_NAME, Command, Fleet
from benchmarks.peer.weights import bytes_per_token

PROMPT, NEW, BATCH_NEW = 128, 128, 64
VOCAB = {"smollm2": 49152}


@dataclass(frozen=True, slots=True)
class Lineup:
    """Everything that contests are made of. model and gemma are GGUF files; gemma None: its contests are left out."""

    places: Places
    fleet: Fleet
    model: Path
    gemma: Path | None
    threads: int

    @property
    def formats(self) -> Formats:
        """Of the first model."""
        return Formats(self.places, self.model)

    @property
    def llama(self) -> Llama:
        """With our number of threads."""
        return Llama(self.places.llama_bin, self.threads)

    # --- kvell ---

    def ours(self, what: str, model: Callable[[], Path], *options: str, setting: str = "") -> Contender:
        """kvell's engine in a process of its own, by benchmarks/peer/ours.py."""

        def run() -> Figures:
            command = [sys.executable, "-m", "benchmarks.peer.ours", what, str(model()), *options]
            figures: Figures = json_of([*command, "--threads", str(self.threads)])
            return figures

        return Contender("kvell", setting, run)

    def our_server(self) -> Command:
        """kvell with its default settings."""
        start = "import sys; from server.cli import main; sys.argv[0] = 'kvell'; main()"
        serve = [sys.executable, "-c", start, "serve", str(self.model), "--served-model-name", MODEL_NAME]
        return Command(lambda port: [*serve, "--port", str(port), "--threads", str(self.threads)], "/ready")

    # --- llama.cpp ---

    def llamas(self, kinds: tuple[str, ...], measure: Callable[[Path, bool], Figures]) -> Iterator[Contender]:
        """Each kind of GGUF with flash attention on and off. "" is the file itself."""
        if not self.llama.installed:
            return
        for kind in kinds:
            for flash in (True, False):
                setting = f"{kind or 'same GGUF'}, flash attention {'on' if flash else 'off'}"
                yield Contender("llama.cpp", setting, partial(self._llama, kind, flash, measure))

    def _llama(self, kind: str, flash: bool, measure: Callable[[Path, bool], Figures]) -> Figures:
        return measure(self.formats.gguf_as(kind) if kind else self.model, flash)

    def llama_model(self) -> Path:
        """What llama-server is given: its best at many sequences."""
        return self.formats.gguf_as("Q8_0")

    # --- Python libraries ---

    def libraries(self, *, sequences: int, prompt: int, new: int, figure: str) -> Iterator[Contender]:
        """Each that is installed, in each of its formats. figure becomes tok_s."""
        formats = self.formats
        settings: dict[str, dict[str, Callable[[], Path]]] = {
            "openvino": {"int8": lambda: formats.openvino("int8"), "int4": lambda: formats.openvino("int4")},
            "ctranslate2": {"int8": formats.ctranslate2},
            "onnxruntime": {"int4": formats.onnxruntime},
            "transformers": {"float32": formats.hf},
        }
        for peer, kinds in settings.items():
            for kind, folder in kinds.items() if self.places.has(peer) else ():
                run = partial(self._library, peer, kind, folder, (sequences, prompt, new), figure)
                yield Contender(peer, kind, run)

    def _library(
        self, peer: str, kind: str, folder: Callable[[], Path], sizes: tuple[int, int, int], figure: str
    ) -> Figures:
        job = Job(str(folder()), *sizes, threads=self.threads, vocab_size=VOCAB["smollm2"], setting=kind)
        script = [str(self.places.python(peer)), "-m", f"benchmarks.peer.in_{peer}", job.to_argument()]
        figures = json_of(script, env=self.places.env)
        return {"tok_s": figures[figure]}

    # --- the machine ---

    def ceiling(self, model: Callable[[], Path]) -> Contender:
        """Tokens per second at which one sequence's weights would use all memory bandwidth."""

        def run() -> Figures:
            size = bytes_per_token(model())
            found = measure_ceilings(self.threads, size)
            return {
                "tok_s": found.read_gb * 1e9 / size,
                "read_gb": found.read_gb,
                "read_own_gb": found.read_own_gb,
                "own_tok_s": found.read_own_gb * 1e9 / size,
                "bytes_per_token": size,
            }

        return Contender("memory ceiling", "", run)


def contests(line: Lineup) -> list[Contest]:
    """All of them, in the order of the table."""
    served = [*serving.bursts(line), serving.start(line)]
    return [*_decode(line), *_batches(line), *_prompts(line), *served, *_gemma(line), *_busy(line)]


def _same(line: Lineup) -> Callable[[], Path]:
    return lambda: line.model


def _decode(line: Lineup) -> Iterator[Contest]:
    options = ("--sequences", "1", "--prompt", "1", "--new", str(NEW))

    def llama(model: Path, flash: bool) -> Figures:
        return line.llama.decode(model, tokens=NEW, flash=flash)

    yield Contest(
        "decode-q4",
        "decode",
        "tok_s",
        line.ours("decode", _same(line), *options),
        (
            *line.llamas(("", "Q8_0"), llama),
            *line.libraries(sequences=1, prompt=PROMPT, new=NEW, figure="tok_s"),
        ),
        (line.ceiling(_same(line)),),
    )
    yield Contest(
        "decode-bf16",
        "decode",
        "tok_s",
        line.ours("decode", line.formats.hf, *options, setting="bf16"),
        tuple(line.llamas(("F16", "BF16"), llama)),
        (line.ceiling(line.formats.hf),),
    )


def _batches(line: Lineup) -> Iterator[Contest]:
    for sequences in (16, 32):

        def llama(model: Path, flash: bool, sequences: int = sequences) -> Figures:
            return line.llama.batch(model, sequences=sequences, prompt=PROMPT, new=BATCH_NEW, flash=flash)

        options = ("--sequences", str(sequences), "--prompt", str(PROMPT), "--new", str(BATCH_NEW))
        others = line.libraries(sequences=sequences, prompt=PROMPT, new=BATCH_NEW, figure="tok_s")
        yield Contest(
            f"batch-{sequences}",
            "batch",
            "tok_s",
            line.ours("decode", _same(line), *options),
            (*line.llamas(("", "Q8_0"), llama), *(others if sequences == 16 else ())),
        )


def _prompts(line: Lineup) -> Iterator[Contest]:
    for tokens in (512, 4096):

        def llama(model: Path, flash: bool, tokens: int = tokens) -> Figures:
            return line.llama.prompt(model, tokens=tokens, flash=flash)

        kinds = ("Q8_0", "F16") if tokens == 4096 else ("", "Q8_0", "F16")
        others = line.libraries(sequences=1, prompt=tokens, new=0, figure="prompt_tok_s")
        yield Contest(
            f"prompt-{tokens}",
            "prompt",
            "tok_s",
            line.ours("prompt", _same(line), "--tokens", str(tokens)),
            (*line.llamas(kinds, llama), *(others if tokens == 512 else ())),
        )


def _gemma(line: Lineup) -> Iterator[Contest]:
    if line.gemma is None:
        return
    gemma = line.gemma
    for sequences in (1, 16):
        prompt, new = (1, NEW) if sequences == 1 else (PROMPT, BATCH_NEW)

        def llama(
            model: Path, flash: bool, sequences: int = sequences, prompt: int = prompt, new: int = new
        ) -> Figures:
            if sequences == 1:
                return line.llama.decode(gemma, tokens=new, flash=flash)
            return line.llama.batch(gemma, sequences=sequences, prompt=prompt, new=new, flash=flash)

        options = ("--sequences", str(sequences), "--prompt", str(prompt), "--new", str(new))
        yield Contest(
            f"gemma-{sequences}",
            "gemma",
            "tok_s",
            line.ours("decode", lambda: gemma, *options),
            tuple(line.llamas(("",), llama)),
        )


def _busy(line: Lineup) -> Iterator[Contest]:
    works = {
        "decode": line.ours("decode", _same(line), "--sequences", "1", "--prompt", "1", "--new", str(NEW)),
        "prompt": line.ours("prompt", _same(line), "--tokens", "512"),
    }
    for name, idle in works.items():

        def beside_a_busy_core(idle: Contender = idle) -> Figures:
            with busy_neighbour():
                return idle.measure()

        yield Contest(
            f"busy-{name}",
            "busy",
            "tok_s",
            Contender("kvell", "", beside_a_busy_core),
            (),
            (Contender("idle", "", idle.measure),),
        )
