"""`kvell plan`: what a model needs and what fits, as a table or as JSON. The figures are `server.engine.planning`'s.

That module imports torch, so it is loaded only when the command runs. Knows terminals.
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from server.config import EngineConfig

if TYPE_CHECKING:
    from server.engine.planning import Plan

MIB = 2**20
# those settings of `kvell serve` that decide about memory; they are spelled alike in both commands
MATTER = (
    *("model", "device", "backend", "dtype", "quantize", "kv-cache-dtype", "kv-cache-memory"),
    *("block-size", "max-model-len", "max-num-seqs", "max-num-batched-tokens"),
)


def plan_of(config: EngineConfig, *, memory_bytes: int | None) -> "Plan":
    """Raises CheckpointError or StartupFailed."""
    found: Plan = importlib.import_module("server.engine.planning").make_plan(config, memory_bytes=memory_bytes)
    return found


def as_json(plan: "Plan", model_id: str) -> str:
    """One object; sequences as a mapping from length to how many."""
    fields: Mapping[str, Any] = asdict(plan)
    return json.dumps({"model": model_id, **fields, "sequences": dict(plan.sequences)})


def size(num_bytes: int) -> str:
    """For people."""
    return f"{num_bytes / MIB / 1024:,.2f} GiB" if num_bytes >= 1024 * MIB else f"{num_bytes / MIB:,.0f} MiB"


def show(plan: "Plan", model_id: str, console: Console) -> None:
    """Where the memory goes, what fits, and what other sizes of cache would hold."""
    computing = f"{plan.backend}, computes in {plan.dtype}, caches in {plan.kv_cache_dtype}"
    console.print(f"{model_id}: {computing}, context {plan.max_model_len:,} tokens", highlight=False, markup=False)
    console.print(_memory(plan))
    console.print(_tokens(plan))
    console.print(_ladder(plan))


def _memory(plan: "Plan") -> Table:
    unpacked = "" if plan.weights_bytes == plan.stored_bytes else f"{size(plan.stored_bytes)} in the file"
    table = _table("Memory", "", "bytes", "")
    table.add_row("weights", size(plan.weights_bytes), unpacked)
    table.add_row("engine beside them", size(plan.engine_bytes), "torch and Python, about")
    table.add_row("KV cache", size(plan.cache_bytes), "as --kv-cache-memory says, else a quarter of the rest")
    total = plan.weights_bytes + plan.engine_bytes + plan.cache_bytes
    table.add_row("in all", size(total), f"of {size(plan.memory_bytes)} that are free")
    return table


def _tokens(plan: "Plan") -> Table:
    fit = ", ".join(f"{number:,} of {length:,}" for length, number in plan.sequences)
    title = f"KV cache: {plan.cache_tokens:,} tokens; sequences at once: {fit}"
    table = _table(title, "layers", "see", "bytes a token", "blocks", "size")
    for group in plan.groups:
        seen = "all" if group.window is None else f"the last {group.window:,}"
        cells = (f"{group.bytes_per_token:,}", f"{group.num_blocks:,}", size(group.num_bytes))
        table.add_row(str(group.num_layers), seen, *cells)
    return table


def _ladder(plan: "Plan") -> Table:
    table = _table("Other sizes", "--kv-cache-memory", "tokens", f"sequences of {plan.max_model_len:,}")
    for rung in plan.ladder:
        table.add_row(size(rung.cache_bytes), f"{rung.tokens:,}", f"{rung.full_sequences:,}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number > 0 and column not in ("", "see") else "left")
    return table
