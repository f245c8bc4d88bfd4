"""Constraints at work: compiled on a thread beside the engine's, then a mask of allowed tokens for each next token.

A mask is a pure function of the constraint and of the tokens generated so far. Knows tokens and grammars; knows no
logits, no batch and no schedule.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from llguidance import LLMatcher

from model.masks import Mask
from model.sampling_params import SamplingParams
from server.engine.grammar import BadConstraint, grammar_of, one_line
from server.engine.request import Constraint
from server.engine.vocabulary import Vocabulary

CAPACITY = 64  # compiled grammars that are kept


class GrammarMask:
    """The mask of one sequence's next token: `fill` brings it up to date with the sequence's growing output.

    It may end when its grammar is satisfied: with one of the model's end tokens, or one of its own stop tokens. Before
    min_tokens, and with end tokens that it ignores, it ends only where the grammar allows nothing else.
    """

    def __init__(
        self, matcher: LLMatcher, vocabulary: Vocabulary, params: SamplingParams, output: Sequence[int]
    ) -> None:
        self.mask: Mask = np.zeros(vocabulary.mask_words, dtype=np.int32)
        self.end_ids = vocabulary.end_ids
        self._bytes = self.mask.view(np.uint8)
        self._matcher = matcher
        self._output = output
        self._consumed = 0
        self._min_tokens = params.min_tokens
        size = vocabulary.tokens.vocab_size
        self._stops = frozenset(i for i in params.stop_token_ids if i < size)

    def fill(self) -> None:
        """Compute the mask. Raises RuntimeError where the grammar can't go on, which is no user's fault."""
        new = list(self._output[self._consumed :])
        self._consumed += len(new)
        if new and not self._matcher.consume_tokens(new):
            raise RuntimeError(one_line(self._matcher.get_error()))
        self._matcher.unsafe_compute_mask_ptr(self.mask.ctypes.data, self.mask.nbytes)
        if self._matcher.is_error():
            raise RuntimeError(one_line(self._matcher.get_error()))
        if self._matcher.is_accepting():
            for token in self._stops:
                self._bytes[token >> 3] |= 1 << (token & 7)
        self._postpone()

    def _postpone(self) -> None:
        """Take away the tokens that shouldn't end it yet, if any are left then."""
        early = self._consumed < self._min_tokens
        unwanted = self.end_ids | self._stops if early else self.end_ids - self._stops
        if not unwanted:
            return
        kept = self._bytes.copy()
        for token in unwanted:
            kept[token >> 3] &= 0xFF ^ (1 << (token & 7))
        if kept.any():
            self._bytes[:] = kept


class Grammars:
    """Compiles constraints and fills masks, each on a thread of its own.

    open_vocabulary is called once, on the compiling thread: with `prepare`, or when the first constraint comes.
    """

    def __init__(self, open_vocabulary: Callable[[], Vocabulary | None], *, capacity: int = CAPACITY) -> None:
        self._open = open_vocabulary
        self._capacity = capacity
        self._vocabulary: Vocabulary | None = None
        self._compiled: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()  # the compiling thread's alone
        self._compiler = ThreadPoolExecutor(1, "grammars")
        self._filler = ThreadPoolExecutor(1, "masks")
        self._no_faults: Future[Mapping[int, Exception]] = Future()  # made once, for the steps without masks
        self._no_faults.set_result({})

    def prepare(self) -> "Future[Vocabulary | None]":
        """Open the vocabulary now. It leaves the interpreter to hardly anybody else, so no stream should run yet.

        One that can't be opened is no fault yet: the first constraint says so.
        """
        return self._compiler.submit(self._opened)

    def compile(self, constraint: Constraint) -> "Future[LLMatcher]":
        """A matcher at its beginning, to be copied and not used. The future raises BadConstraint, or our fault."""
        return self._compiler.submit(self._compile, constraint)

    def start(self, matcher: LLMatcher, params: SamplingParams, output: Sequence[int]) -> GrammarMask:
        """A sequence begins under what `compile` gave. output is its growing list of ids."""
        assert self._vocabulary is not None, "nothing was compiled yet"
        return GrammarMask(matcher.deep_copy(), self._vocabulary, params, output)

    def fill(self, masks: Mapping[int, GrammarMask]) -> "Future[Mapping[int, Exception]]":
        """Bring these up to date, beside what the caller goes on with; what went wrong, by the same keys."""
        if masks:
            return self._filler.submit(_fill_all, masks)
        return self._no_faults

    def _compile(self, constraint: Constraint) -> LLMatcher:
        key = (constraint.kind, constraint.source)
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        vocabulary = self._opened()
        if vocabulary is None:
            raise BadConstraint("no token of this model ends an answer, so a constrained one could not end")
        matcher = LLMatcher(vocabulary.tokens, grammar_of(constraint), log_level=0)
        if matcher.is_error():
            raise BadConstraint(one_line(matcher.get_error()))
        self._compiled[key] = matcher
        if len(self._compiled) > self._capacity:
            self._compiled.popitem(last=False)
        return matcher

    def _opened(self) -> Vocabulary | None:
        if self._vocabulary is None:
            self._vocabulary = self._open()
        return self._vocabulary


def _fill_all(masks: Mapping[int, GrammarMask]) -> Mapping[int, Exception]:
    faults: dict[int, Exception] = {}
    for key, mask in masks.items():
        try:
            mask.fill()
        except Exception as error:
            faults[key] = error
    return faults
