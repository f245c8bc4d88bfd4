"""Builds and installs the peers, each into its own environment; what is there already stays.

    python -m benchmarks.peer.install [--into build/peers] [--only llama.cpp,ctranslate2]

llama.cpp comes in the source package of llama-cpp-python and is built for this very machine with cmake. One that fails
is reported, and the others go on. Exit code 1 if one failed.
"""

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

LLAMA_PACKAGE = "llama-cpp-python==0.3.36"
TORCH = ["torch==2.13.0"]
TOOLS = ("llama-bench", "llama-batched-bench", "llama-quantize", "llama-perplexity", "llama-server")
CMAKE_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
# What is installed after torch; the first one's version is the peer's.
LIBRARIES = {
    "ctranslate2": ["ctranslate2", "transformers"],
    "openvino": ["openvino-genai", "openvino-tokenizers", "optimum-intel[openvino]", "nncf"],
    "onnxruntime": ["onnxruntime-genai", "onnx", "onnx-ir", "transformers"],
    "transformers": ["transformers", "gguf", "accelerate"],
}
PEERS = ("llama.cpp", *LIBRARIES)


def pip_install(folder: Path, packages: list[str]) -> None:
    """Into the virtual environment at the folder, which is made if it isn't there."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--prefer-binary",
    ]
    subprocess.run([*pip, *packages], check=True)


def version_in(folder: Path, package: str) -> str:
    """What the environment has of it."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([folder / "bin" / "python", "-c", code], check=True, capture_output=True, text=True)
    return f"{package} {done.stdout.strip()}"


def install_library(folder: Path, packages: list[str]) -> str:
    """A peer that is a Python package. Returns its version."""
    pip_install(folder, TORCH)
    pip_install(folder, [*TORCH, *packages])  # named again, so that nothing brings another one
    return version_in(folder, packages[0])


def install_llama(folder: Path) -> str:
    """llama.cpp's tools, into folder/bin. Returns the version of the package that they came in."""
    source = _llama_source(folder)
    options = [f"-D{name}={value}" for name, value in CMAKE_OPTIONS.items()]
    subprocess.run(["cmake", "-S", source, "-B", folder, *options], check=True)
    subprocess.run(["cmake", "--build", folder, "-j", "2", "--target", *TOOLS], check=True)
    return f"llama.cpp of {LLAMA_PACKAGE}, built for this machine"


def _llama_source(folder: Path) -> Path:
    """Fetched and unpacked, if it isn't there."""
    source = folder / "source"
    if not source.exists():
        fetch: list[str | Path] = [
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
            "-d",
            folder,
            LLAMA_PACKAGE,
        ]
        subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *fetch], check=True)
        (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "unpacked", filter="data")
        (vendored,) = (folder / "unpacked").glob("*/vendor/llama.cpp")
        vendored.rename(source)
    return source


def main(
    into: Path = Path("build/peers"),
    only: Annotated[str, typer.Option(help="Peers, separated by commas; default all.")] = "",
) -> None:
    """Install what isn't installed."""
    console = Console(stderr=True)
    wanted = [name for name in only.split(",") if name] or list(PEERS)
    if unknown := sorted(set(wanted) - set(PEERS)):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(PEERS)}", param_hint="--only")
    failed = [name for name in wanted if not install_one(name, into.resolve() / name, console.print)]
    raise typer.Exit(1 if failed else 0)


def install_one(name: str, folder: Path, say: Callable[[str], None]) -> bool:
    """Whether the peer is there afterwards."""
    done = folder / ".installed"
    if done.exists():
        say(f"{name}: {done.read_text().strip()} is there")
        return True
    say(f"{name}: installing, which takes minutes")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        version = install_llama(folder) if name == "llama.cpp" else install_library(folder, LIBRARIES[name])
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        say(f"{name}: not installed: {error}")
        return False
    done.write_text(version + "\n", encoding="utf-8")
    say(f"{name}: {version}")
    return True


if __name__ == "__main__":
    typer.run(main)
