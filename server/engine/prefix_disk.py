"""Opens the blocks on disk for the engine, and says what must be equal for their bytes to mean the same.

Knows settings, files and code; knows no requests and no tensors' contents.
"""

import hashlib
import inspect
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cache import pool as pool_module
from cache.directory import BlockDirectory
from cache.disk import DiskCache
from cache.manager import CacheManager
from cache.pool import KVPool
from model.config import ModelConfig
from server.config import EngineConfig
from server.engine.reloading import NoDisk, Reloader, Reloading


def open_disk(config: EngineConfig, numbers: Sequence[str], manager: CacheManager, pool: KVPool) -> Reloading:
    """What --prefix-cache-dir means. numbers: what computes, and in which types.

    A folder that can't be used is no reason not to serve: then nothing is kept, and a warning says so.
    """
    if config.prefix_cache_dir is None:
        return NoDisk()
    try:
        directory = BlockDirectory(Path(config.prefix_cache_dir), config.prefix_cache_bytes)
    except OSError as error:
        return NoDisk(f"--prefix-cache-dir: nothing is kept, {error.filename or ''}: {error.strerror}")
    form = [model_digest(Path(config.model_path)), code_digest(), config.quantize, str(config.block_size), *numbers]
    return Reloader(manager, DiskCache(directory, pool, block_size=config.block_size, form=form))


def model_digest(path: Path) -> str:
    """SHA-256 of all that keys and values depend on: the whole file, or a folder's weights and config.json.

    Reads them whole, when they have just been loaded.
    """
    files = [path] if path.is_file() else [path / "config.json", *sorted(path.glob("*.safetensors"))]
    return _digest_of(files)


def code_digest() -> str:
    """SHA-256 of the code that computes keys and values: another version may round differently."""
    folder = Path(inspect.getfile(ModelConfig)).parent
    return _digest_of([*sorted(folder.rglob("*.py")), Path(inspect.getfile(pool_module))])


def _digest_of(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    with ThreadPoolExecutor() as pool:
        for part in pool.map(_file_digest, files):
            total.update(part)
    return total.hexdigest()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
