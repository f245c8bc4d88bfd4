"""The real engine's process with faults built in: what a request does to it, its prompt says.

`faulty_server` is the server for it.

    python faulty_engine.py --fd N

No product code knows of this. A request that asks for none of `tests.helpers.faults` is served as ever.
"""

import ctypes
import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence

from server.config import EngineConfig
from server.engine import main
from server.engine.constraint import GrammarMask, Grammars
from server.engine.engine import Engine
from server.engine.request import Constraint
from server.engine.scheduler import Work
from tests.helpers.faults import ABORTING_PATTERN, BAD_GRAMMAR_SEED, FAULTS, LARGE_BYTES, SAMPLER, jump_the_clock

Composed = tuple[main.Core, main.Ready]


def misbehave(fault: int) -> None:
    """Do that to this process. Returns only where the fault is none of the step's."""
    match fault:
        case 1:  # the numbers are those of `tests.helpers.faults`
            raise ArithmeticError("the step failed as it was told to")
        case 2:
            os.abort()
        case 3:
            ctypes.string_at(0)
        case 4:
            time.sleep(1e6)
        case 5:
            while True:
                pass
        case 6:
            bytearray(1 << 46)
        case 8:
            os._exit(0)
        case 9:
            bytearray(LARGE_BYTES)


def is_due(prompt: Sequence[int], output: Sequence[int]) -> int | None:
    """The fault that is to happen now."""
    return prompt[0] if len(prompt) > 1 and prompt[0] in FAULTS and len(output) >= prompt[1] else None


def spoil(engine: Engine) -> None:
    """Let faults happen in its steps and its sampler."""
    forward, choose = engine._forward, engine._sampler.choose

    def bad_forward(work: Sequence[Work]) -> object:
        for each in work:
            fault = is_due(each.generation.request.prompt, each.generation.output)
            if fault is not None and fault != SAMPLER:
                misbehave(fault)
        return forward(work)

    def bad_choose(scores: object, rows: Sequence[object]) -> object:
        if any(is_due(row.prompt, row.output) == SAMPLER for row in rows):
            raise LookupError("the sampler failed as it was told to")
        return choose(scores, rows)

    engine._forward, engine._sampler.choose = bad_forward, bad_choose


def spoil_grammars() -> None:
    """Let faults happen when constraints are compiled and masks are made."""
    start, compile_one, fill = Grammars.start, Grammars._compile, GrammarMask.fill
    bad = set[int]()

    def bad_start(self: Grammars, matcher: object, params: object, output: Sequence[int]) -> GrammarMask:
        mask = start(self, matcher, params, output)
        if params.seed == BAD_GRAMMAR_SEED:
            bad.add(id(mask))
        return mask

    def bad_compile(self: Grammars, constraint: Constraint) -> object:
        if constraint.source == ABORTING_PATTERN:
            os.abort()
        return compile_one(self, constraint)

    def bad_fill(self: GrammarMask) -> None:
        if id(self) in bad and len(self._output) >= 3:
            bad.remove(id(self))
            raise RuntimeError("the grammar failed as it was told to")
        fill(self)

    Grammars.start, Grammars._compile, GrammarMask.fill = bad_start, bad_compile, bad_fill


def find_composer() -> Callable[[EngineConfig, Callable[[str, float], None]], Composed]:
    """The real one; what it made is spoilt."""
    compose = importlib.import_module("server.engine.compose").compose

    def composed(config: EngineConfig, report: Callable[[str, float], None]) -> Composed:
        engine, ready = compose(config, report)
        spoil(engine)
        return engine, ready

    return composed


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jump_the_clock()
    spoil_grammars()
    main._import_composer = find_composer
    sys.exit(main.main())
