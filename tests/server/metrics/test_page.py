"""docs/metrics.md and what is served say the same."""

import pytest

from server.metrics import Metrics
from tests.helpers.engine_reports import ready
from tests.helpers.scrapes import Family, assert_same, promised, scraped


def served(*, vllm: bool) -> dict[str, Family]:
    metrics = Metrics()
    if vllm:
        metrics.add_vllm_names("tiny", block_size=16)
    metrics.engine_ready(ready(), restarted=False)
    return scraped(metrics.render()[0].decode())


def test_the_page_has_every_figure_with_its_labels_and_their_values() -> None:
    assert_same(served(vllm=False), {name: each for name, each in promised().items() if name[:5] != "vllm:"})


def test_the_page_has_vllms_names_too() -> None:
    assert_same(served(vllm=True), promised())


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("kvell_requests_waiting", None),
        ("kvell_new_total", Family("counter", {})),
        ("kvell_step_seconds", Family("gauge", {})),
        ("kvell_step_seconds", Family("histogram", {"model": None})),
        ("kvell_kv_cache_bytes", Family("gauge", {"state": frozenset({"used", "free"})})),
    ],
)
def test_a_difference_would_be_found(name: str, changed: Family | None) -> None:
    page = promised()
    page.pop(name, None)
    if changed:
        page[name] = changed
    with pytest.raises(AssertionError):
        assert_same(served(vllm=True), page)
