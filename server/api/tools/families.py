"""Which family's way of calling a model has. One row per family; docs/api.md has the same table in prose.

A model is recognised by its chat template. One whose template shows no tools, or shows them in a way that isn't known
here, is told of them in the system message and answers in Hermes' form (`server.api.tools.prompting`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from server.api.tools import hermes, llama, mistral
from server.api.tools.calls import CallParser
from server.api.tools.grammar import Form

Parser = Callable[[Callable[[], str]], CallParser]


@dataclass(frozen=True, slots=True)
class Family:
    """in_template: the model's own template shows tools, calls and what they brought.

    id_length: some templates insist on ids of so many letters and digits; 0 for OpenAI's kind.
    """

    name: str
    parser: Parser
    form: Form
    in_template: bool = True
    id_length: int = 0


HERMES_FORM = Form(
    open=(hermes.OPEN, "\n"),
    close=("\n", hermes.CLOSE),
    between=("\n",),
    trigger=hermes.OPEN,
    marks=(hermes.OPEN, hermes.CLOSE),
)
HERMES = Family("hermes", hermes.HermesParser, HERMES_FORM)
PROMPTED = Family("prompted", hermes.HermesParser, HERMES_FORM, in_template=False)
LLAMA = Family("llama", llama.LlamaParser, Form(between=("; ",), key="parameters", marks=(llama.TAG,)))
MISTRAL = Family(
    "mistral",
    mistral.MistralParser,
    Form(
        prefix=(mistral.MARK, "["),
        between=(", ",),
        suffix=("]",),
        trigger=mistral.MARK,
        marks=(mistral.MARK,),
    ),
    id_length=9,
)
MISTRAL_NAMED = Family(
    "mistral-named",
    mistral.MistralParser,
    Form(open=(mistral.MARK,), key=None, args=mistral.ARGS, trigger=mistral.MARK, marks=(mistral.MARK, mistral.ARGS)),
    id_length=9,
)


def family_of(template: str, special_tokens: Mapping[str, int]) -> Family:
    """The family of a model with this chat template ("" for none)."""
    if not re.search(r"\btools\b", template):
        return PROMPTED
    if hermes.OPEN in template and "<function=" not in template:  # Qwen3-Coder has the tags, and XML between them
        return HERMES
    if mistral.MARK in template:
        return MISTRAL_NAMED if mistral.ARGS in template else MISTRAL
    if "<|start_header_id|>" in template and ('"parameters"' in template or llama.TAG in special_tokens):
        return LLAMA
    return PROMPTED
