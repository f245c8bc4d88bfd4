"""A generation counts what it has written, what was computed twice, and what the cache saved."""

from cache.groups import KVGroup
from cache.manager import CacheManager
from model.sampling_params import SamplingParams
from server.engine.generation import Generation
from server.engine.request import Request, TokenEvent

BLOCK = 4


def make_generation(*, prompt: int = 10, max_tokens: int = 3, stop: tuple[int, ...] = (7,)) -> Generation:
    request = Request("a", tuple(range(100, 100 + prompt)), max_tokens, SamplingParams(stop_token_ids=stop))
    return Generation(request, arrival=0, waiting_since=5.0)


def make_manager() -> CacheManager:
    return CacheManager([KVGroup(None, (0,))], [33], block_size=BLOCK, max_chunk=16)


def compute(manager: CacheManager, generation: Generation, num_tokens: int) -> None:
    assert manager.reserve(generation.running_sequence, num_tokens)
    manager.commit(generation.running_sequence, num_tokens)
    generation.note_computed()


def test_it_shares_its_growing_list_with_the_sequence() -> None:
    generation, manager = make_generation(), make_manager()
    generation.admit(manager.open(generation.tokens), now=5.0)
    assert generation.append(55) is None
    assert generation.running_sequence.tokens[-1] == 55
    assert generation.output == [55]
    assert generation.request.prompt == tuple(range(100, 110)), "the prompt itself never changes"


def test_it_decodes_once_all_but_the_last_generated_token_is_computed() -> None:
    generation, manager = make_generation(), make_manager()
    generation.admit(manager.open(generation.tokens), now=5.0)
    compute(manager, generation, 9)
    assert (generation.uncomputed, generation.decoding) == (1, False), "the last prompt token is still prompt"
    compute(manager, generation, 1)
    generation.append(1)
    assert (generation.uncomputed, generation.decoding) == (1, True)


def test_it_ends_by_a_stop_token_or_by_length_and_the_stop_token_wins() -> None:
    generation = make_generation(max_tokens=2)
    assert [generation.append(1), generation.append(2)] == [None, "length"]
    generation = make_generation(max_tokens=1)
    assert generation.append(7) == "stop"
    generation = make_generation(max_tokens=3, stop=())
    assert [generation.append(7), generation.append(7), generation.append(7)] == [None, None, "length"]


def test_time_in_the_line_adds_up_over_preemptions() -> None:
    generation, manager = make_generation(), make_manager()
    generation.admit(manager.open(generation.tokens), now=7.5)
    manager.close(generation.running_sequence)
    generation.preempt(now=10.0)
    assert generation.sequence is None
    generation.admit(manager.open(generation.tokens), now=11.0)
    assert (generation.queue_seconds, generation.preemptions) == (3.5, 1)


def test_cached_tokens_are_those_that_it_never_computed_itself() -> None:
    manager = make_manager()
    other = make_generation(prompt=14)
    other.admit(manager.open(other.tokens), now=5.0)
    generation = make_generation(prompt=10)
    generation.admit(manager.open(generation.tokens), now=5.0)
    compute(manager, generation, 4)
    assert generation.cached_tokens == 0

    manager.close(generation.running_sequence)
    generation.preempt(now=6.0)
    compute(manager, other, 14)  # meanwhile somebody computes more of the same prompt
    generation.admit(manager.open(generation.tokens), now=7.0)

    assert generation.running_sequence.num_computed == 8
    assert generation.cached_tokens == 4, "the first block it had computed itself"
    assert generation.high_water == 8


def test_output_that_the_cache_kept_is_no_cached_prompt() -> None:
    generation, manager = make_generation(prompt=4, max_tokens=20), make_manager()
    generation.admit(manager.open(generation.tokens), now=5.0)
    compute(manager, generation, 4)
    for token in range(9):
        generation.append(token + 20)
        compute(manager, generation, 1)
    manager.close(generation.running_sequence)
    generation.preempt(now=6.0)
    generation.admit(manager.open(generation.tokens), now=7.0)
    assert generation.running_sequence.num_computed == 12
    assert generation.cached_tokens == 0


def test_an_event_carries_the_totals_so_far() -> None:
    generation = make_generation()
    generation.cached_tokens, generation.preemptions, generation.queue_seconds = 8, 1, 0.25
    assert generation.event((3,), finish="stop") == TokenEvent(
        "a", (3,), (), "stop", cached_tokens=8, preemptions=1, queue_seconds=0.25
    )
