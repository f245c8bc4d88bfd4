"""The house keeps its shape: who may import whom, where torch may appear, and how long things may get."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = sorted(path for top in ("server", "model", "cache") for path in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# A room and the rooms whose modules it may import, itself aside. Longest prefix wins.
MAY_IMPORT = {
    "cache": (),
    "model": (),
    "server.setting": (),
    "server.settings": ("server.setting",),
    "server.config": ("server.setting", "server.settings"),
    "server.logs": ("server.config",),
    "server.keys": ("server.config",),
    "server.version": (),
    "server.bench": (),
    "server.catalogue": ("model", "server.config"),
    "server.metrics": ("server.config", "server.engine", "model"),
    "server.engine": ("server.config", "server.logs", "model", "cache"),
    "server.api": (
        "server.engine",
        "server.config",
        "server.keys",
        "server.logs",
        "server.metrics",
        "server.version",
        "model",
    ),
    "server": ("server", "model"),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if is_module(f"{node.module}.{alias.name}")
            )


def is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


def ours(name: str) -> bool:
    return name.split(".")[0] in ("server", "model", "cache")


def room(module: str) -> str:
    fits = [r for r in MAY_IMPORT if module == r or module.startswith(r + ".")]
    return max(fits, key=len)


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    here = room(name_of(path))
    for target in imports(path):
        if not ours(target) or target == "server":
            continue
        there = room(target)
        allowed = (here, *MAY_IMPORT[here])
        assert any(there == a or there.startswith(a + ".") for a in allowed), f"{name_of(path)} imports {target}"


def test_no_import_cycles() -> None:
    graph = {name_of(p): {t for t in imports(p) if ours(t) and t != name_of(p) and is_module(t)} for p in PRODUCT}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for target in graph.get(module, ()):
            # importing a submodule runs the package's __init__, which is not a use of it
            if not module.startswith(target + "."):
                visit(target, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_stand_at_the_top(path: Path) -> None:
    for function in ast.walk(tree(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [n.lineno for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)]
            assert not inner, f"{path}: imports inside {function.name} at lines {inner}"


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_sizes_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path
    for function in ast.walk(tree(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (function.end_lineno or 0) - function.lineno + 1
            assert length <= 50, f"{path}: {function.name} has {length} lines"


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path)), path


def test_only_the_pool_holds_tensors_in_cache() -> None:
    users = {name_of(p) for p in PRODUCT if any(t.split(".")[0] == "torch" for t in imports(p))}
    assert {u for u in users if u.startswith("cache")} == {"cache.pool"}
    assert not {u for u in users if u.startswith("server.api")}


def test_only_one_room_knows_prometheus() -> None:
    users = {name_of(p) for p in PRODUCT if any(t.startswith("prometheus_client") for t in imports(p))}
    assert {room(user) for user in users} == {"server.metrics"}


def test_the_engine_core_knows_no_http_and_no_asyncio() -> None:
    core = ("scheduler", "engine", "generation", "pacing", "main", "request", "wire")
    for name in core:
        path = ROOT / "server" / "engine" / f"{name}.py"
        used = {t.split(".")[0] for t in imports(path)}
        assert not used & {"asyncio", "fastapi", "starlette", "uvicorn", "httpx"}, f"{name} imports {used}"


def test_the_api_process_never_imports_torch() -> None:
    heavy = ("torch", "transformers", "opentelemetry.sdk")
    code = f"import server.app, server.cli, sys; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_tests_have_at_least_as_many_lines_as_the_product() -> None:
    def count(paths: list[Path]) -> int:
        return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in paths)

    assert count(TESTS) >= count(PRODUCT)
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_nothing_committed_names_a_machine_or_a_registry() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    telling = re.compile(
        r"/work/(main|scratch|shared)|/root/|pypi\.|pythonhosted|npmjs\.|deb\.debian"
        r"|huggingface\.co/[a-z]+/[a-z]+/resolve"
    )
    for name in filter(None, files):
        path = ROOT / name
        if path.suffix in (".png", ".gguf") or path == Path(__file__) or not path.is_file():
            continue
        found = telling.search(path.read_text(encoding="utf-8", errors="replace"))
        assert not found, f"{name}: {found and found[0]}"
