"""Where chat templates run: jinja2's sandbox, set up as the ecosystem's templates expect, with bounds on work and size.

A template is code from a model file. The sandbox keeps it from Python's insides; the bounds here keep it from looping
for ever or filling memory: loop turns, calls and lookups are counted, and every text or list that an operation makes
is measured. Knows jinja2; knows no messages.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 500_000
MAX_SIZE = 16 * 1024 * 1024  # characters or items
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")


class TooMuch(TemplateError):
    """The template works or grows beyond its bounds."""


class Raised(TemplateError):
    """The template called raise_exception: it refuses these messages."""


class _Generation(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what training learns from; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own type)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounds(NodeTransformer):
    """Adds counting to loops, and turns `a ~ b`, which the sandbox does not see, into a call, which it does."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(tick).set_lineno(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("tilde"), node.nodes, [], None, None)
        call.set_lineno(node.lineno)
        return call


class Sandbox(ImmutableSandboxedEnvironment):
    """One template's environment. Not to be shared by threads: it counts one rendering at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            optimized=False,  # constants would be folded before anything is counted
        )
        self.filters["tojson"] = _tojson
        self.filters = {name: _measured(function) for name, function in self.filters.items()}
        self.globals["raise_exception"] = _raise
        self._steps_left = MAX_STEPS

    def run(self, template: Template, variables: Mapping[str, Any]) -> str:
        """Render. Raises TooMuch, and whatever the template raises."""
        self._steps_left = MAX_STEPS
        parts, size = [], 0
        for part in template.generate(variables):
            size += len(part)
            if size > MAX_SIZE:
                raise TooMuch(f"writes more than {MAX_SIZE} characters")
            parts.append(part)
        return "".join(parts)

    def tick(self) -> None:
        """One step of work."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooMuch(f"takes more than {MAX_STEPS} steps")

    def tilde(self, *parts: Any) -> str:
        """The `~` operator."""
        return "".join(map(str, parts))

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.tick()
        return _measure(super().call(context, obj, *args, **kwargs))

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.tick()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.tick()
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.tick()
        if operator == "*" and _product(left, right) > MAX_SIZE:
            raise TooMuch(f"makes a text or list of more than {MAX_SIZE}")
        if operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise TooMuch("formats with a width above 9999")
        if operator == "**" and isinstance(right, int) and abs(right) > 64:
            raise TooMuch("raises a number to a power above 64")
        return _measure(super().call_binop(context, operator, left, right))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Bounds().visit(super()._parse(source, name, filename))
        return tree


def _product(left: Any, right: Any) -> int:
    """The length of a sequence times a number; 0 where nothing is repeated."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, (str, list, tuple)) and isinstance(other, int):
            return len(one) * other
    return 0


def _measure(value: Any) -> Any:
    if isinstance(value, (str, list, tuple)) and len(value) > MAX_SIZE:
        raise TooMuch(f"makes a text or list of more than {MAX_SIZE}")
    return value


def _measured(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, its result measured. Keeps the marks by which jinja2 knows what else to pass to it."""

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        return _measure(function(*args, **kwargs))

    return measured


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Iterable[str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: not escaped for HTML (jinja2's own filter is), letters as they are."""
    pair = None if separators is None else tuple(separators)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)  # type: ignore[arg-type]


def _raise(message: str = "") -> None:
    raise Raised(str(message))
