"""A run's results as a file: which machine, which commit, what was measured. A later run can add its rounds to it."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peer.contests import Record
from benchmarks.peer.rows import judge_all

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "benchmarks" / "results"


class OtherRun(Exception):
    """The file holds results of another commit or machine; the message is for people."""


@dataclass(slots=True)
class Results:
    """machine and peers: plain data that says where and against what. records by contest's id."""

    commit: str
    machine: dict[str, Any]
    peers: dict[str, str]
    date: str
    records: dict[str, Record] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the rows as they stand."""
        return {
            "benchmark": "peers",
            "date": self.date,
            "commit": self.commit,
            "machine": self.machine,
            "peers": self.peers,
            "rows": [result.to_json() for result in judge_all(self.records)],
            "contests": {name: record.to_json() for name, record in self.records.items()},
        }

    def write(self, path: Path) -> None:
        """Over what was there, at once or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    def continue_from(self, path: Path) -> None:
        """Take over the file's records, if there is one. Raises OtherRun where they are not comparable."""
        if not path.exists():
            return
        data = json.loads(path.read_text(encoding="utf-8"))
        if (data["commit"], data["machine"]["cpu"]) != (self.commit, self.machine["cpu"]):
            raise OtherRun(f"{path} holds results of commit {data['commit']} on {data['machine']['cpu']}")
        self.date = data["date"]
        self.records = {name: Record.from_json(record) for name, record in data["contests"].items()}

    def take_tries(self, path: Path) -> None:
        """Of another file, for contests that have none here: an older commit's do, since they are of peers alone."""
        for name, data in json.loads(path.read_text(encoding="utf-8"))["contests"].items():
            record = self.records.setdefault(name, Record(data["ours"], data["deciding"]))
            record.tries = record.tries or data["tries"]


def begin(peers: Mapping[str, str], threads: int) -> Results:
    """Results of now, here, without any figures."""
    return Results(commit(), machine(threads), dict(peers), datetime.now(UTC).strftime("%Y-%m-%d"))


def commit() -> str:
    """Short; with "-changed" where a tracked file differs from it, "unknown" outside a checkout."""
    try:
        name = _git("rev-parse", "--short=10", "HEAD").strip()
        return name + ("-changed" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def machine(threads: int) -> dict[str, Any]:
    """What figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_name(cpuinfo: str) -> str:
    """The first model name of /proc/cpuinfo, else the kind of processor."""
    names = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def default_path(results: Results) -> Path:
    """benchmarks/results/DATE-COMMIT.json."""
    return FOLDER / f"{results.date}-{results.commit}.json"
