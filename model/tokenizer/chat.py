"""Chat templates: messages to the one text that the model was trained on.

Variables and helpers are those that templates of the ecosystem use (Hugging Face's chat templating). Knows templates
and special tokens' texts; encoding is the tokenizer's.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateSyntaxError, UndefinedError
from jinja2.meta import find_undeclared_variables

from model.tokenizer.marks import Marker
from model.tokenizer.sandbox import Raised, Sandbox, TooMuch
from model.tokenizer.special import without

FIXED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception"})


class ChatTemplateError(Exception):
    """The template is broken or refuses these messages. str() is one line for whoever sent them."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered chat, for Tokenizer.encode_template. literal_mark marks special-token text that a user typed."""

    text: str
    literal_mark: str | None = None


class ChatTemplate:
    """One model's template, or several by name: "default", and "tool_use" for requests with tools."""

    def __init__(
        self,
        source: str | Mapping[str, str],
        *,
        special_tokens: Mapping[str, int],
        named_tokens: Mapping[str, str],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """special_tokens: text -> id. named_tokens: what templates see, "bos_token", "eos_token" ... -> text.

        A template that does not parse is not an error yet: completions are still served. See `problem`.
        """
        self._named_tokens = dict(named_tokens)
        self._special_tokens = special_tokens
        self._marker = Marker(special_tokens)
        self._now = now
        self._sandbox = Sandbox()
        self._lock = threading.Lock()  # the sandbox counts one rendering at a time
        self.problem: str | None = None
        self.text = source if isinstance(source, str) else "\n".join(source.values())  # of all templates
        self._source = json.dumps(source, ensure_ascii=False)
        self._templates: dict[str, Template] = {}
        self.variables: set[str] = set()  # that it reads, beside those that it always gets
        for name, text in {"default": source}.items() if isinstance(source, str) else source.items():
            self._compile(name, text)

    def replaced(self, source: str) -> "ChatTemplate":
        """Another template for the same model."""
        return ChatTemplate(source, special_tokens=self._special_tokens, named_tokens=self._named_tokens, now=self._now)

    def _compile(self, name: str, text: str) -> None:
        try:
            self._templates[name] = self._sandbox.from_string(text)
            self.variables |= find_undeclared_variables(self._sandbox.parse(text)) - FIXED - self._named_tokens.keys()
        except TemplateSyntaxError as error:
            self.problem = f"the model's chat template does not parse: {error.message} (line {error.lineno})"
        except RecursionError:
            self.problem = "the model's chat template does not parse: it is nested too deeply"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> Rendered:
        """Raises ChatTemplateError. A message's content may be a list of text parts, which are one text.

        continue_final_message: what comes after the last message's content is left out.

        Special-token text in anything that comes from the request is marked as text. That must not change what the
        template decides, so the marked rendering is compared with the plain one; where breaking the text up does
        change it (the template looks for that text in a message), marks before the text are tried.
        """
        given = {
            **variables,
            "messages": [_plain_message(message) for message in messages],
            "tools": list(tools) if tools else None,
            "documents": list(documents) if documents else None,
        }
        if not continue_final_message:
            return self._render(given, tools, add_generation_prompt)
        end = self._marker.unused_mark(given.values(), self._source)
        last = given["messages"][-1]
        last["content"] = f"{last.get('content') or ''}{end}"
        rendered = self._render(given, tools, add_generation_prompt)
        before, found, after = rendered.text.partition(end)
        if not found or end in after:
            raise ChatTemplateError("the chat template doesn't write the last message as it is, so it can't go on")
        return Rendered(before, rendered.literal_mark)

    def _render(
        self, given: dict[str, Any], tools: Sequence[Mapping[str, Any]] | None, add_generation_prompt: bool
    ) -> Rendered:
        with self._lock:
            template = self._pick(tools)
            strftime_now = self._now().strftime
            fixed = {"add_generation_prompt": add_generation_prompt, "strftime_now": strftime_now, **self._named_tokens}
            text = self._run(template, {**given, **fixed})
            if not self._marker.touches(given.values()):
                return Rendered(text)
            mark = self._marker.unused_mark(given.values(), self._source)
            broken = self._run_marked(template, self._marker.broken(given, mark), fixed)
            if broken is not None and without(broken, mark) == text:
                return Rendered(broken, mark)
            prefixed = self._run_marked(template, self._marker.prefixed(given, mark), fixed)
        if prefixed is not None and without(prefixed, mark) == text:
            return Rendered(prefixed, mark)
        if broken is None:
            raise ChatTemplateError("a message has the text of a special token where the chat template needs its own")
        return Rendered(broken, mark)

    def _pick(self, tools: Sequence[Mapping[str, Any]] | None) -> Template:
        if self.problem is not None:
            raise ChatTemplateError(self.problem)
        if tools and "tool_use" in self._templates:
            return self._templates["tool_use"]
        if "default" not in self._templates:
            raise ChatTemplateError(f"the model has no default chat template, only {', '.join(self._templates)}")
        return self._templates["default"]

    def _run_marked(self, template: Template, given: Mapping[str, Any], fixed: Mapping[str, Any]) -> str | None:
        """Render marked values; None when the marks make the template fail."""
        try:
            return self._run(template, {**given, **fixed})
        except ChatTemplateError:
            return None

    def _run(self, template: Template, variables: Mapping[str, Any]) -> str:
        try:
            return self._sandbox.run(template, variables)
        except Exception as error:  # a template is code: anything can come out of it
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ChatTemplateError(f"the chat template {_blame(error)}{reason}") from error


def _blame(error: Exception) -> str:
    match error:
        case Raised():
            return "refuses these messages: "
        case TooMuch():
            return ""
        case UndefinedError():
            return "needs what the messages lack: "
        case _:
            return "fails on these messages: "


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Text parts joined to one text, and tool calls' arguments as objects, which is how templates want them."""
    plain = dict(message)
    content = plain.get("content")
    if isinstance(content, list) and content and all(_is_text(part) for part in content):
        plain["content"] = "".join(part["text"] for part in content)
    if isinstance(calls := plain.get("tool_calls"), list):
        plain["tool_calls"] = [_plain_call(call) for call in calls]
    return plain


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _plain_call(call: Any) -> Any:
    """OpenAI's clients send a call's arguments as JSON text; templates expect the object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call
