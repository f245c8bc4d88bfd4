"""Alert rules and dashboard: they read figures that exist, and each alert fires when it should and only then."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.expressions import DOCKER, alerts, panels
from tests.helpers.scrapes import promised

CASES = Path(__file__).with_name("alerts_test.yaml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


@pytest.mark.parametrize(("where", "expression"), alerts() + panels())
def test_every_figure_that_is_read_exists_with_the_labels_that_are_asked(where: str, expression: str) -> None:
    page = promised()
    for name, asked in re.findall(r"\b(kvell_\w+)(?:\{([^}]*)\})?", expression):
        figure = page[name] if name in page else page[re.sub(r"_(bucket|sum|count)$", "", name)]
        for label, value in re.findall(r'(\w+)="([^"]*)"', asked):
            values = figure.labels[label]
            assert values is None or value in values, where


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


@needs_promtool
def test_prometheus_understands_its_configuration_and_the_rules() -> None:
    checked = promtool("check", "config", DOCKER / "prometheus.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    counted = promtool("check", "rules", DOCKER / "alerts.yaml")
    assert f"{len(alerts())} rules found" in counted.stdout


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    cases = tmp_path / "alerts_test.yaml"
    cases.write_text(CASES.read_text().replace("../../docker", str(DOCKER)))
    checked = promtool("test", "rules", cases)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_alert_is_without_a_case() -> None:
    assert {name for name, _ in alerts()} == set(re.findall(r"Kvell\w+", CASES.read_text()))
