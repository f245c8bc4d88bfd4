"""A real Prometheus that scrapes a server under test every quarter of a second, and answers questions about it."""

import contextlib
import json
import queue
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.live_server import PATIENCE

DOCKER = Path(__file__).parents[2] / "docker"


class Prometheus:
    """It runs with the configuration that kvell ships, apart from address and pace."""

    def __init__(self, address: str) -> None:
        self.address = address

    def wait_ready(self) -> "Prometheus":
        """Until it answers questions."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=PATIENCE):
                    return self
            except urllib.error.HTTPError:
                assert time.monotonic() < deadline, "prometheus does not get ready"
                time.sleep(0.05)

    def ask(self, path: str, **given: str) -> Any:
        """The data of an answer of its HTTP API; an error is an AssertionError with what it says."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answered:
                return json.loads(answered.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{given}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression yields now: metric and value, or values for a range."""
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result

    def value(self, expression: str) -> float:
        """The one number that an expression yields now."""
        (only,) = self.query(expression)
        return float(only["value"][1])

    def until(self, expression: str, what: str) -> None:
        """Until an expression yields anything."""
        deadline = time.monotonic() + PATIENCE
        while not self.query(expression):
            assert time.monotonic() < deadline, what
            time.sleep(0.05)


@contextlib.contextmanager
def running_prometheus(target: str, directory: Path) -> Iterator[Prometheus]:
    """One whose job kvell is `target` (host:port); its data lies in `directory`."""
    config = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DOCKER / name) for name in config["rule_files"]]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Prometheus(_address(process)).wait_ready()
    finally:
        process.kill()
        process.wait(PATIENCE)


def _address(process: subprocess.Popen[str]) -> str:
    """Where it listens, from its log, which goes on being read so that it never waits for a reader."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        with process.stderr as pipe:
            for line in pipe:
                lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    seen = []
    while line := lines.get(timeout=PATIENCE):
        seen.append(line)
        if found := re.search(r'msg="Listening on" .*?address=(127\.0\.0\.1:\d+)', line):
            return found[1]
    raise AssertionError("prometheus did not start: " + "".join(seen))
