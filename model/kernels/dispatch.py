"""How values that are not tensors take over an op: by the type of its first argument. Knows no op and no value."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar, cast

Op = TypeVar("Op", bound=Callable[..., Any])


def op(reference: Op) -> Op:
    """The reference in torch, or what `take_over` registered for other kinds of first arguments."""
    return cast(Op, singledispatch(reference))


def take_over(reference: Callable[..., Any], kind: type, instead: Callable[..., Any]) -> None:
    """Calls of this op whose first argument is of this kind go to `instead` from now on."""
    cast(Any, reference).register(kind, instead)
