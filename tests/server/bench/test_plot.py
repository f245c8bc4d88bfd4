"""A picture is written of any run, and shows each kind of end."""

from pathlib import Path

import pytest

from server.bench.figures import Target, summarise
from server.bench.load import Run
from server.bench.outcome import Outcome

plot = pytest.importorskip("server.bench.plot", exc_type=ImportError)


def mixed() -> Run:
    run = Run(load_s=4.0)
    for number in range(40):
        due = number / 10
        ok = Outcome(number, due=due, sent=due, ended=due + 2, pieces=[due + 0.2 + number / 20, due + 2])
        run.outcomes.append(ok)
    run.outcomes.append(Outcome(40, due=1.0, head_sent=1.0, answered=1.01, ended=1.02, kind="503"))
    run.outcomes.append(Outcome(41, due=2.0, ended=3.0, kind="cut stream"))
    return run


@pytest.mark.parametrize("run", [mixed(), Run()], ids=["mixed", "empty"])
def test_a_picture_is_written(run: Run, tmp_path: Path) -> None:
    targets = [Target("ttft", 1000)]
    plot.draw(run, summarise(run, targets), targets, "a title", tmp_path / "run.svg")
    text = (tmp_path / "run.svg").read_text()
    assert text.rstrip().endswith("</svg>")


def test_every_kind_of_end_is_counted_in_the_legend(tmp_path: Path) -> None:
    figure = plot.Figure()
    axes = figure.subplots()
    plot._became(axes, mixed(), [Target("ttft", 1000)])
    labels = set(axes.get_legend_handles_labels()[1])
    assert labels == {"answered in time (17)", "answered late (23)", "refused (1)", "failed (1)"}


def test_a_kind_of_file_that_nobody_can_write_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        plot.draw(mixed(), summarise(mixed()), [], "t", tmp_path / "run.xyz")
