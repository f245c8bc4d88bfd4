"""Constraints at work on an engine over a tiny random model: what it writes fits, and nobody else notices."""

import json
import re
from typing import Any

import jsonschema
import pytest

from model.sampling_params import SamplingParams
from server.engine.constraint import Grammars
from server.engine.grammar import BadConstraint
from server.engine.request import Constraint, ConstraintKind, Request
from server.engine.vocabulary import Vocabulary, vocabulary_of
from tests.helpers.constrained import ConstrainedWorld, make_constrained_world
from tests.helpers.tiny_text import FIRST_PIECE, TinyTokenizer, ids_of, piece_id, text_of

END = 257


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ConstrainedWorld:
    return make_constrained_world(tmp_path_factory.mktemp("constrained") / "model")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return vocabulary_of(TinyTokenizer(), frozenset({END}))


def ask(
    world: ConstrainedWorld, kind: ConstraintKind, source: str = "", *, max_tokens: int = 200, **params: Any
) -> Request:
    stops = {"stop_token_ids": tuple(world.tokenizer.eos_ids)} | params
    constraint = Constraint(kind, source, "the.field")
    return Request(f"{kind}-{id(stops)}", (72, 105, 33), max_tokens, SamplingParams(**stops), constraint=constraint)


# masks, of a tokenizer whose tokens can be read


def allowed(grammars: Grammars, kind: ConstraintKind, source: str, *output: str | int, **params: Any) -> set[int]:
    """What may come after this output."""
    matcher = grammars.compile(Constraint(kind, source)).result(30)
    params = {"stop_token_ids": (END,)} | params
    mask = grammars.start(matcher, SamplingParams(**params), ids_of(*output))
    assert grammars.fill({5: mask}).result(30) == {}
    return {token for token in range(FIRST_PIECE + 10) if mask.mask[token // 32] >> token % 32 & 1}


@pytest.fixture(scope="module")
def grammars(vocabulary: Vocabulary) -> Grammars:
    return Grammars(lambda: vocabulary)


def test_tokens_are_allowed_that_begin_what_may_follow(grammars: Grammars) -> None:
    assert allowed(grammars, "regex", "abcd|ab c") == {ord("a"), piece_id("ab"), piece_id("abc")}
    assert allowed(grammars, "regex", "abcd|ab c", "ab") == {ord("c"), ord(" ")}
    assert allowed(grammars, "regex", "abcd|ab c", piece_id("abc")) == {ord("d")}


def test_the_end_token_is_allowed_exactly_where_the_grammar_may_end(grammars: Grammars) -> None:
    assert allowed(grammars, "regex", "ab*") == {ord("a"), piece_id("ab")}
    assert allowed(grammars, "regex", "ab*", "a") == {ord("b"), END}
    assert allowed(grammars, "regex", "ab", "ab") == {END}


SEPARATED = {"item_separator": ";", "key_separator": "=", "whitespace_flexible": False, "whitespace_pattern": "!"}


@pytest.mark.parametrize("own", [{}, SEPARATED])
def test_json_has_its_own_separators_whatever_a_schema_asks_for(grammars: Grammars, own: dict[str, Any]) -> None:
    schema = json.dumps(
        {"type": "object", "properties": {"a": {"type": "array", "items": {"const": 1}}}} | {"x-guidance": own}
    )
    after_key = allowed(grammars, "json_schema", schema, '{"a"')
    assert {ord(":"), ord(" ")} <= after_key
    assert not after_key & {ord("="), ord("!")}
    after_item = allowed(grammars, "json_schema", schema, '{"a":[1')
    assert {ord(","), ord("]"), ord("\n")} <= after_item
    assert not after_item & {ord(";"), ord("!")}


def test_characters_of_several_bytes_are_allowed_byte_by_byte(grammars: Grammars) -> None:
    assert allowed(grammars, "choice", '["ü", "🎉"]') == {0xC3, 0xF0, piece_id("🎉")}
    assert allowed(grammars, "choice", '["ü", "🎉"]', 0xC3) == {0xBC}


def test_special_tokens_are_allowed_only_where_a_grammar_names_them(grammars: Grammars) -> None:
    assert allowed(grammars, "lark", 'start: <|turn|> "a"') == {258}
    assert allowed(grammars, "lark", 'start: <|turn|> "a"', 258) == {ord("a")}
    assert not allowed(grammars, "regex", "(.|\n)*", "x") & {256, 258, 259}


def test_a_stop_token_of_the_users_is_allowed_where_the_grammar_may_end(grammars: Grammars) -> None:
    stops = (END, 259)
    assert allowed(grammars, "regex", "ab*", "a", stop_token_ids=stops) == {ord("b"), END, 259}
    assert allowed(grammars, "regex", "ab*", stop_token_ids=stops) == {ord("a"), piece_id("ab")}


def test_before_min_tokens_it_goes_on_as_long_as_it_can(grammars: Grammars) -> None:
    assert allowed(grammars, "regex", "ab*", "a", min_tokens=2) == {ord("b")}
    assert allowed(grammars, "regex", "ab*", "ab", min_tokens=2) == {ord("b"), END}
    assert allowed(grammars, "regex", "ab", "ab", min_tokens=9) == {END}, "a grammar that is at its end wins"


def test_end_tokens_that_are_ignored_come_only_where_nothing_else_may(grammars: Grammars) -> None:
    assert allowed(grammars, "regex", "ab*", "a", stop_token_ids=()) == {ord("b")}
    assert allowed(grammars, "regex", "ab", "ab", stop_token_ids=()) == {END}


def test_a_mask_is_the_same_whether_it_was_filled_at_every_token_or_once(grammars: Grammars) -> None:
    text = '{"name": "Höl", "n": [1, 22]}'
    matcher = grammars.compile(Constraint("json_object")).result(30)
    output: list[int] = []
    kept = grammars.start(matcher, SamplingParams(), output)
    for token in text.encode():
        kept.fill()
        fresh = grammars.start(matcher, SamplingParams(), list(output))
        fresh.fill()
        assert (fresh.mask == kept.mask).all(), text_of(output)
        output.append(token)


def test_a_token_that_the_grammar_forbids_is_our_fault_and_only_this_sequences(grammars: Grammars) -> None:
    matcher = grammars.compile(Constraint("regex", "ab")).result(30)
    masks = [grammars.start(matcher, SamplingParams(), ids_of(text)) for text in ("a", "x", "")]
    faults = grammars.fill(dict(enumerate(masks))).result(30)
    assert list(faults) == [1]
    assert isinstance(faults[1], RuntimeError)


def test_equal_constraints_are_compiled_once_and_old_ones_forgotten(vocabulary: Vocabulary) -> None:
    grammars = Grammars(lambda: vocabulary, capacity=2)

    def compile(source: str) -> object:
        return grammars.compile(Constraint("regex", source, param=f"field of {source}")).result(30)

    a, b = compile("a"), compile("b")
    assert compile("a") is a
    compile("c")  # pushes out b, which was used least recently
    assert compile("a") is a
    assert compile("b") is not b


def test_a_vocabulary_is_opened_once_and_only_when_it_is_needed(vocabulary: Vocabulary) -> None:
    opened: list[int] = []

    def open_it() -> Vocabulary:
        opened.append(1)
        return vocabulary

    grammars = Grammars(open_it)
    assert not opened
    for source in ("a", "b"):
        grammars.compile(Constraint("regex", source)).result(30)
    assert opened == [1]


def test_a_vocabulary_that_is_prepared_is_not_opened_again_and_a_broken_one_is_no_fault_yet(
    vocabulary: Vocabulary,
) -> None:
    opened: list[int] = []

    def open_it() -> Vocabulary:
        opened.append(1)
        if len(opened) == 1:
            raise OSError("broken")
        return vocabulary

    grammars = Grammars(open_it)
    assert isinstance(grammars.prepare().exception(30), OSError)
    assert grammars.prepare().result(30) is vocabulary
    grammars.compile(Constraint("regex", "a")).result(30)
    assert opened == [1, 1]


def test_a_model_without_an_end_token_serves_no_constraints() -> None:
    with pytest.raises(BadConstraint, match="no token of this model ends an answer"):
        Grammars(lambda: None).compile(Constraint("regex", "a")).result(30)


# the engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_fit_their_constraint(world: ConstrainedWorld, temperature: float) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, "x"]}, "b": {"type": "boolean"}}, "required": ["a"]}
    schema |= {"additionalProperties": False}
    got = world.run(
        [
            ask(world, "json_schema", json.dumps(schema), temperature=temperature, seed=5),
            ask(world, "regex", "(foo|bar)-[0-9]{3}", temperature=temperature, seed=6),
            ask(world, "choice", '["north", "süd"]', temperature=temperature, seed=7),
        ]
    )
    one, two, three = got.values()
    assert [answer.finish for answer in got.values()] == ["stop"] * 3
    jsonschema.validate(json.loads(world.text(one)), schema)
    assert re.fullmatch("(foo|bar)-[0-9]{3}", world.text(two))
    assert world.text(three) in ("north", "süd")


def test_an_answer_that_is_cut_says_so(world: ConstrainedWorld) -> None:
    (answer,) = world.run([ask(world, "regex", "[a-z]{50}", max_tokens=9)]).values()
    assert (answer.finish, len(answer.tokens)) == ("length", 9)
    assert re.fullmatch("[a-z]{9,}", world.text(answer))


def test_a_grammar_at_its_end_ends_the_answer_even_if_end_tokens_are_ignored(world: ConstrainedWorld) -> None:
    (answer,) = world.run([ask(world, "regex", "abc", stop_token_ids=(), min_tokens=30)]).values()
    assert (answer.finish, world.text(answer)) == ("stop", "abc")


def test_what_the_vocabulary_shows_to_be_no_grammar_is_the_users_fault(world: ConstrainedWorld) -> None:
    (answer,) = world.run([ask(world, "lark", "start: <|nope|>")]).values()
    assert (answer.finish, answer.refused) == ("error", True)
    assert answer.error == 'at 1(8): unknown special token: "<|nope|>"'


def test_a_constraint_whose_tokens_are_all_banned_ends_its_request_alone(world: ConstrainedWorld) -> None:
    bans = dict.fromkeys(world.tokenizer.encode("a", add_bos=False), float("-inf"))
    banned, other = ask(world, "regex", "a", logit_bias=bans), ask(world, "choice", '["a"]')
    got = world.run([banned, other])
    assert got[banned.id].finish == "error"
    assert "both the constraint and the request's bans allow" in (got[banned.id].error or "")
    assert got[other.id].finish == "stop"


def test_a_cancel_while_the_grammar_is_compiled_leaves_nothing(world: ConstrainedWorld) -> None:
    request = ask(world, "regex", "[a-f]{3,40}x")
    world.engine.submit([request])
    assert world.engine.stats().waiting == 1
    world.engine.cancel([request.id])
    (event,) = world.engine.step().events
    assert (event.request_id, event.finish) == (request.id, "cancelled")
    assert (world.engine.stats().waiting, world.engine.has_work) == (0, False)
