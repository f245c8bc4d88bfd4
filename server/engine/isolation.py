"""Runs something for a whole batch and, when that raises, finds out for whom it does.

Knows nothing of models or requests.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def run_isolated(
    call: Callable[[Sequence[Item]], Result], items: Sequence[Item]
) -> list[tuple[Sequence[Item], Result | Exception]]:
    """Results of `call` for groups of items that together are all of them, in order.

    One group when the call succeeds for all, as it nearly always does. When it raises, it is repeated for each half:
    one guilty item among n costs about 2 log2(n) calls, its neighbours get their results, and it alone gets the
    exception. So `call` must be one that may be repeated. A call that fails for want of memory succeeds in halves, too.
    """
    try:
        return [(items, call(items))]
    except Exception as error:
        if len(items) == 1:
            logger.exception("a request failed")
            return [(items, error)]
    middle = len(items) // 2
    return run_isolated(call, items[:middle]) + run_isolated(call, items[middle:])
