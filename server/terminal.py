"""What `kvell serve` says on the terminal: how loading goes, and, once it is ready, where it is and how to ask it."""

import json
import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from server.engine.wire import Progress as Loading
from server.engine.wire import Ready

MIB = 2**20
TOLD = (
    *("cache_tokens", "cache_bytes", "kv_cache_dtype", "device", "backend", "kernels", "dtype", "quantization"),
    *("threads", "load_seconds", "note"),
)

logger = logging.getLogger("kvell")


@contextmanager
def loading_bar(console: Console) -> Iterator[Callable[[Loading], None]]:
    """Shows how far the engine is; leaves nothing behind when it is done. Silent where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.percentage:.0f} %"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting the engine", total=1.0)
        yield lambda loading: bar.update(task, description=loading.what, completed=loading.fraction)


def announce(console: Console, info: Ready, *, url: str, model_id: str, chats: bool, needs_key: bool) -> None:
    """The server is ready: where, what, how big, and a line to paste."""
    kernels = f"native {info.kernels}" if info.backend == "native" else info.backend
    weights = "" if info.quantization == "none" else f"{info.quantization} weights, "
    engine = (
        f"{weights}{info.device}, {kernels}, {info.dtype}, {info.threads} threads, {info.load_seconds:.1f} s to load"
    )
    cache = f"{info.cache_tokens} tokens, {info.cache_bytes / MIB:.0f} MiB ({info.kv_cache_dtype})"
    lines = [
        "kvell is ready",
        f"  address   {url}",
        f"  model     {model_id} ({engine})",
        f"  context   {min(info.max_model_len, info.cache_tokens)} tokens",
        f"  KV cache  {cache}",
        f"  try       {curl_line(url, model_id, chats=chats, needs_key=needs_key)}",
    ]
    lines += [f"  note      {info.note}"] if info.note else []
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.file.flush()


def log_ready(info: Ready, *, url: str, model_id: str) -> None:
    """The same as one record of the log."""
    fields = {"address": url, "model": model_id, "context_tokens": min(info.max_model_len, info.cache_tokens)}
    fields |= {name: getattr(info, name) for name in TOLD}
    logger.info("kvell is ready", extra={"fields": fields})


def curl_line(url: str, model_id: str, *, chats: bool, needs_key: bool) -> str:
    """A command for a POSIX shell that streams an answer; the key, if one is needed, comes from the environment."""
    question = "Why is the sky blue?"
    asked = {"messages": [{"role": "user", "content": question}]} if chats else {"prompt": "The sky is blue because"}
    body = {"model": model_id, "stream": True, "max_tokens": 100} | asked
    path = "/v1/chat/completions" if chats else "/v1/completions"
    key = ' -H "Authorization: Bearer $KVELL_API_KEY"' if needs_key else ""
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl -N {shlex.quote(url + path)}{key} -H 'Content-Type: application/json' -d {data}"
