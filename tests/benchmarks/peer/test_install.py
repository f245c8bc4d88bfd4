"""Installing peers: what is there stays, what fails is said, and the others go on."""

import subprocess
from pathlib import Path

import pytest
import typer

from benchmarks.peer import install


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_there_stays(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".installed").write_text("ctranslate2 4.8\n")
    monkeypatch.setattr(install, "install_library", lambda *given: pytest.fail("installed again"))
    assert install.install_one("ctranslate2", tmp_path, said.append)
    assert said == ["ctranslate2: ctranslate2 4.8 is there"]


def test_an_install_is_marked_at_its_end(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "install_library", lambda folder, packages: f"{packages[0]} 1.2")
    assert install.install_one("openvino", tmp_path / "openvino", said.append)
    assert (tmp_path / "openvino" / ".installed").read_text() == "openvino-genai 1.2\n"


def test_one_that_fails_is_said_and_not_marked(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> str:
        raise subprocess.CalledProcessError(2, "cmake")

    monkeypatch.setattr(install, "install_llama", fail)
    assert not install.install_one("llama.cpp", tmp_path, said.append)
    assert not (tmp_path / ".installed").exists()
    assert "not installed" in said[-1]


def test_the_exit_code_says_whether_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "install_one", lambda name, folder, say: name != "openvino")
    for only, code in (("ctranslate2", 0), ("ctranslate2,openvino", 1), ("", 1)):
        with pytest.raises(typer.Exit) as ended:
            install.main(tmp_path, only)
        assert ended.value.exit_code == code
    with pytest.raises(typer.BadParameter, match=r"vllm; known: llama\.cpp"):
        install.main(tmp_path, "vllm")
