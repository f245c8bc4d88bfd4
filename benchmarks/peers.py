"""kvell against every peer that is installed: same model, same prompts, same machine, A B A B, medians and ranges.

    python -m benchmarks.peers [--only decode,http-16] [--runs 5]

`make bench-peers` installs the peers and runs this. Run it from the repository's root, on an otherwise idle machine. A
table, then one JSON object on the last line of stdout; both are kept in benchmarks/results. A run with --only adds its
rounds to the results of the same commit, so that the whole can be measured in pieces. What is not installed is skipped,
and said.
"""

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.peer import lineup, results, rows
from benchmarks.peer.contests import Contest, Record, compete, group_of, steps
from benchmarks.peer.formats import Places
from benchmarks.peer.install import PEERS
from benchmarks.peer.servers import Fleet
from server.catalogue import ModelUnavailable, pull
from server.engine.cores import usable_cores

WIDTH = 190  # of the table that is kept
MODEL, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"


@dataclass(frozen=True, slots=True)
class Session:
    """One call of this program: where results go, and who hears of progress."""

    found: results.Results
    path: Path
    console: Console

    def run(self, contests: list[Contest], runs: int) -> None:
        """Measure; what came is kept after every contest."""
        columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            for contest in contests:
                record = self.found.records.setdefault(contest.id, Record(contest.ours.name, contest.deciding))
                record.failures.clear()  # what failed last time may work now
                task = progress.add_task(contest.id, total=steps(contest, record, runs=runs))
                for doing in compete(contest, record, runs=runs):
                    progress.update(task, description=f"{contest.id}: {doing}")
                    progress.advance(task)
                progress.update(task, description=contest.id)
                self.found.write(self.path)

    def show(self) -> None:
        """The table, on the console and beside the JSON; then the JSON."""
        table = rows.table_of(rows.judge_all(self.found.records), f"kvell {self.found.commit}, {self.found.date}")
        with self.path.with_suffix(".txt").open("w", encoding="utf-8") as file:
            screen = self.console if self.console.is_terminal else Console(stderr=True, width=WIDTH)
            for console in (screen, Console(file=file, width=WIDTH)):
                self._describe(console)
                console.print(table)
                self._failures(console)
        print(json.dumps(self.found.to_json()))

    def _describe(self, console: Console) -> None:
        machine = self.found.machine
        console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['system']}")
        for peer, version in self.found.peers.items():
            console.print(f"  {peer}: {version}", highlight=False)

    def _failures(self, console: Console) -> None:
        for name, record in self.found.records.items():
            for contender, why in record.failures.items():
                console.print(f"{name}: {contender}: {why}", markup=False, highlight=False)


def versions(places: Places) -> dict[str, str]:
    """What of each peer is installed; those that are not say so."""
    return {
        peer: (places.root / peer / ".installed").read_text().strip() if places.has(peer) else "not installed, skipped"
        for peer in PEERS
    }


def gemma_if_there(name: str, accept_terms: bool, console: Console) -> Path | None:
    """Where it is; without it, or without its terms, its contests are left out."""
    try:
        return pull(name, accept_terms=accept_terms, console=console).path.resolve()
    except ModelUnavailable as error:
        console.print(f"without Gemma: {error}", markup=False)
        return None


def main(
    model: Annotated[str, typer.Option(help="SmolLM2-135M-Instruct in Q4_1: a .gguf file or a name.")] = MODEL,
    gemma: Annotated[str, typer.Option(help="Gemma 3 270M: a .gguf file or a name.")] = GEMMA,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", envvar="KVELL_ACCEPT_TERMS", help="Agree to Gemma's terms of use.")
    ] = False,
    peers: Annotated[Path, typer.Option(help="Where the peers are installed.")] = Path("build/peers"),
    only: Annotated[str, typer.Option(help="Groups or contests, separated by commas.")] = "",
    runs: Annotated[int, typer.Option(min=0, help="Rounds.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One round.")] = False,
    into: Annotated[Path | None, typer.Option(help="The file of results.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where there is a file of results.")] = False,
    tries_from: Annotated[
        Path | None,
        typer.Option(help="Results whose tries are taken over: peers in the settings that were best there."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of everybody; by default one per core.")] = None,
) -> None:
    """Measure, keep, compare."""
    console = Console(stderr=True)
    places = Places(peers.resolve())
    found = results.begin(versions(places), threads or usable_cores())
    path = into or results.default_path(found)
    if not fresh:
        try:
            found.continue_from(path)
        except results.OtherRun as error:
            raise typer.BadParameter(f"{error}; --fresh begins anew") from error
    if tries_from:
        found.take_tries(tries_from)
    smollm = pull(model, accept_terms=accept_terms, console=console).path.resolve()
    with closing(Fleet()) as fleet:
        other = gemma_if_there(gemma, accept_terms, console)
        line = lineup.Lineup(places, fleet, smollm, other, found.machine["threads"])
        try:
            chosen = group_of(lineup.contests(line), [name for name in only.split(",") if name])
        except ValueError as error:
            raise typer.BadParameter(f"unknown: {error}", param_hint="--only") from error
        session = Session(found, path, console)
        session.run(chosen, 1 if quick else runs)
    session.show()


if __name__ == "__main__":
    typer.run(main)
