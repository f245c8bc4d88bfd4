"""`kvell pull`: resolve a model with a progress bar."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column

from server.catalogue.resolve import Resolved, resolve


def pull(model: str, *, accept_terms: bool, console: Console) -> Resolved:
    """Fetch and check a model, showing how far it is on the console. Raises ModelUnavailable."""
    with Bars(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1)),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        return resolve(model, accept_terms=accept_terms, progress=show)
