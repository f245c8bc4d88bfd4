"""What docker/'s alert rules and dashboard ask Prometheus: the place (alert or panel) and the expression."""

import json
from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).parents[2] / "docker"


def alert_rules() -> list[dict[str, Any]]:
    """Every rule as the file has it."""
    (group,) = yaml.safe_load((DOCKER / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[tuple[str, str]]:
    """Title and expression of every line on the dashboard."""
    board = json.loads((DOCKER / "grafana" / "dashboards" / "kvell.json").read_text())
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def alerts() -> list[tuple[str, str]]:
    """Name and expression of every alert."""
    return [(rule["alert"], rule["expr"]) for rule in alert_rules()]
