"""What /metrics answers, and what docs/metrics.md promises, in one form that can be compared."""

import re
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
COMMON = {"model_name", "engine"}  # labels of all of vLLM's names


@dataclass(frozen=True)
class Family:
    """A figure: its type, and its labels with their values; None: any."""

    type: str
    labels: dict[str, frozenset[str] | None]


def scraped(text: str) -> dict[str, Family]:
    """By name, as Prometheus' text format has it. Values of labels are those that occur."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name + "_total" * (family.type == "counter")
        values: dict[str, set[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    values.setdefault(label, set()).add(value)
        found[name] = Family(family.type, {label: frozenset(each) for label, each in values.items()})
    return found


def promised() -> dict[str, Family]:
    """By name, as the page has it."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if row := re.match(r"\| `([\w:]+)` \| (\w+) \|", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            vllm = row[1].startswith("vllm:")
            labels = _labels(cells[2] if vllm else cells[3]) | (dict.fromkeys(COMMON) if vllm else {})
            assert row[1] not in found, f"{row[1]} stands on the page twice"
            found[row[1]] = Family(row[2], labels)
    return found


def _labels(cell: str) -> dict[str, frozenset[str] | None]:
    """`state`: used, free; `a`, `b`: in words. Words with a space or none at all stand for any value."""
    labels: dict[str, frozenset[str] | None] = {}
    for part in filter(None, cell.split("; ")):
        names, _, values = part.partition(": ")
        listed = values.split(", ")
        exact = frozenset(listed) if values and not any(" " in each for each in listed) else None
        labels |= dict.fromkeys(re.findall(r"`(\w+)`", names), exact)
    return labels


def assert_same(found: dict[str, Family], page: dict[str, Family]) -> None:
    """Name for name, label for label, value for value, in both directions."""
    assert set(found) - set(page) == set(), "served, and not on the page"
    assert set(page) - set(found) == set(), "on the page, and not served"
    for name, family in found.items():
        expected = page[name]
        assert family.type == expected.type, name
        assert set(family.labels) == set(expected.labels), name
        for label, values in expected.labels.items():
            assert values is None or family.labels[label] == values, f"{name}{{{label}}}"


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every series and its value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
