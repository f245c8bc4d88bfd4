"""What is compared is what was asked, and a difference is told."""

from benchmarks.restart import Answer, summarise

COLD: list[Answer] = [(3.0, 0, [1, 2]), (2.0, 0, [3, 4]), (9.0, 0, [5])]


def test_medians_and_sameness() -> None:
    warm = [(seconds / 10, 32, tokens) for seconds, _, tokens in COLD]
    disk = [(seconds / 2, 32, tokens) for seconds, _, tokens in COLD]
    figures = summarise(COLD, warm, disk)
    assert figures["first_token_seconds"] == {"computed": 3.0, "from_memory": 0.3, "from_disk": 1.5}
    assert figures["cached_tokens"]["from_disk"] == [32, 32, 32]
    assert figures["same_tokens"]


def test_one_different_token_is_noticed() -> None:
    disk = [(1.0, 32, [1, 2]), (1.0, 32, [3, 7]), (1.0, 32, [5])]
    assert not summarise(COLD, COLD, disk)["same_tokens"]
