"""Templates are code from a model file: what they may use, and what they may not do."""

from typing import Any

import pytest
from jinja2 import TemplateError, UndefinedError
from jinja2.exceptions import SecurityError

from model.tokenizer import sandbox
from model.tokenizer.sandbox import Raised, Sandbox, TooMuch


def run(source: str, **variables: Any) -> str:
    environment = Sandbox()
    return environment.run(environment.from_string(source), variables)


class TestHelpers:
    """What templates of the ecosystem use."""

    def test_blocks_take_their_line_with_them(self) -> None:
        assert run("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"

    def test_loop_controls(self) -> None:
        assert (
            run(
                "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
                "{% if i == 3 %}{% break %}{% endif %}{% endfor %}"
            )
            == "023"
        )

    def test_json_is_not_escaped_and_takes_pythons_options(self) -> None:
        value = {"b": "<é>", "a": [1, None, True]}
        assert run("{{ v | tojson }}", v=value) == '{"b": "<é>", "a": [1, null, true]}'
        assert run("{{ v | tojson(indent=1) }}", v=[1]) == "[\n 1\n]"
        assert (
            run("{{ v | tojson(sort_keys=true, ensure_ascii=true) }}", v=value)
            == '{"a": [1, null, true], "b": "<\\u00e9>"}'
        )
        assert run("{{ v | tojson(separators=(',', ':')) }}", v=value) == '{"b":"<é>","a":[1,null,true]}'

    def test_generation_blocks_are_their_content(self) -> None:
        assert run("a{% generation %}b{{ 1 }}{% endgeneration %}c") == "ab1c"

    def test_namespaces_macros_and_filters(self) -> None:
        assert (
            run("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
            == "3"
        )
        assert run("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') ~ m(1) }}") == "<a><1>"
        assert (
            run(
                "{{ ['a', 'b'] | map('upper') | join('-') }} {{ ' x ' | trim }} "
                "{{ (xs | selectattr('k') | list)[0].k }}",
                xs=[{"k": 1}],
            )
            == "A-B x 1"
        )

    def test_string_methods_and_slices(self) -> None:
        assert run("{{ 'a</t>b'.split('</t>')[-1] }}{{ 'abc'[1:] }}{{ xs[::-1][0] }}", xs=[1, 2]) == "bbc2"

    def test_raise_exception_carries_its_message(self) -> None:
        with pytest.raises(Raised, match="roles must alternate"):
            run("{{ raise_exception('roles must alternate') }}")

    def test_undefined_is_empty_until_something_is_asked_of_it(self) -> None:
        assert run("[{{ nothing }}]{{ nothing is defined }}") == "[]False"
        with pytest.raises(UndefinedError):
            run("{{ nothing.more }}")


class TestWalls:
    """Python's insides and the values that came in are out of reach."""

    @pytest.mark.parametrize(
        "source",
        [
            "{{ ''.__class__.__mro__ }}",
            "{{ ''['__class__'].x }}",
            "{{ raise_exception.__globals__.x }}",
            "{{ ('' | attr('__class__')).x }}",
            "{{ '{0.__class__.x}'.format('') }}",
            "{{ xs.append(1) }}",
            "{{ d.update({}) }}",
        ],
    )
    def test_forbidden(self, source: str) -> None:
        with pytest.raises((SecurityError, UndefinedError)):
            run(source, xs=[], d={})


class TestBounds:
    """A hostile template ends soon, without filling memory."""

    @pytest.mark.parametrize(
        "source",
        [
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{% for i in xs %}{% for j in xs %}{% for k in xs %}{% endfor %}{% endfor %}{% endfor %}",
            "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
            "{% set ns = namespace(n=0) %}{% for i in range(99999) %}{% set ns.n = ns.n + 1 %}{% endfor %}",
        ],
    )
    def test_work(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sandbox, "MAX_STEPS", 20_000)
        with pytest.raises(TooMuch, match="steps"):
            run(source, xs=list(range(1000)))

    @pytest.mark.parametrize(
        "source",
        [
            "{{ 'a' * 10**9 }}",
            "{{ 10**9 * ['a'] }}",
            "{{ ('a' * 9999) * 9999 }}",
            "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
            "{% set ns.x = ns.x.replace('b', ns.x) %}{% endfor %}",
            "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "{% for i in range(2000) %}{{ 'a' * 99 }}{% endfor %}",
            "{{ '%999999999d' % 1 }}",
            "{{ '%*d' % (999999999, 1) }}",
            "{{ 2 ** 99999999 }}",
        ],
    )
    def test_size(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sandbox, "MAX_SIZE", 100_000)
        with pytest.raises(TooMuch):
            run(source)

    def test_recursion_without_end(self) -> None:
        with pytest.raises(RecursionError):
            run("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")

    def test_bounds_are_per_rendering(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sandbox, "MAX_STEPS", 100)
        environment = Sandbox()
        template = environment.from_string("{% for i in range(40) %}{% endfor %}ok")
        assert [environment.run(template, {}) for _ in range(5)] == ["ok"] * 5

    def test_formatting_within_reason_works(self) -> None:
        assert (
            run("{{ '%05.1f %s %%' % (1.25, 'x') }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ 'ab' * 2 }}{{ [0] * 2 }}")
            == "001.2 x %10243abab[0, 0]"
        )


def test_syntax_errors_name_the_line() -> None:
    with pytest.raises(TemplateError) as error:
        Sandbox().from_string("a\n{% if %}")
    assert getattr(error.value, "lineno", None) == 2
