"""What a request can ask of `faulty_engine`: a prompt [fault, after, ...] works like any other until `after` tokens of
the answer are there. No torch, so that tests, servers and engines can all read it."""

import os
import time

RAISE = 1  # an exception in the step
ABORT = 2  # abort(), as a failed assertion in native code
SEGFAULT = 3  # a read at address 0
HANG = 4  # the step never ends, without the interpreter lock
SPIN = 5  # the step never ends, holding the interpreter lock
DEVOUR = 6  # more memory than there is
SAMPLER = 7  # an exception in sampling
EXIT = 8  # the process ends as if all were well
LARGE = 9  # needs LARGE_BYTES for a moment, which are there unless somebody limits them
FAULTS = range(RAISE, LARGE + 1)
LARGE_BYTES = 256 << 20

BAD_GRAMMAR_SEED = 666  # a constrained request with this seed: its mask can't be made, three tokens in
ABORTING_PATTERN = "abort(ing)?"  # a regex that takes the process down while it is compiled
JUMP_SECONDS = float(os.environ.get("FAULTY_CLOCK_JUMP", "0"))  # how far the wall clock jumps, to and fro


def jump_the_clock() -> None:
    """From now on the wall clock jumps forth and back with every look at it."""
    if not JUMP_SECONDS:
        return
    right, sign = time.time, [1]

    def wrong() -> float:
        sign[0] = -sign[0]
        return right() + sign[0] * JUMP_SECONDS

    time.time = wrong
