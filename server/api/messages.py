"""Messages become prompt ids, by the model's chat template. Shared by chat and /tokenize."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.tokenizer.chat import ChatTemplate, ChatTemplateError, Rendered
from server.api.serving import ServedModel
from server.api.tools.families import family_of
from server.api.tools.prompting import Turn, prompted
from server.api.types import Message
from server.engine.errors import InvalidValue, NoChatTemplate

# templates know "system"; OpenAI's newer name for it means the same
ROLES = {"developer": "system"}


@dataclass(frozen=True, slots=True)
class Framing:
    """How a conversation is put to the model, beside its messages. template None: the model's own.

    variables: what the template is told beside what it always is.
    """

    template: ChatTemplate | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


def render(messages: Sequence[Message], model: ServedModel, framing: Framing = Framing()) -> tuple[int, ...]:
    """Prompt ids of a conversation. Special tokens that a user typed stay text (the template's own ones count)."""
    template = framing.template or model.template
    if template is None:
        raise NoChatTemplate(f"{model.id} has no chat template; use /v1/completions", param="messages")
    turns, tools = [_turn(message) for message in messages], framing.tools
    if not family_of(template.text, model.tokenizer.special_tokens).in_template:
        turns, tools = prompted(turns, tools), None
    try:
        rendered = _rendered(template, turns, tools, framing)
    except ChatTemplateError as error:
        raise InvalidValue(str(error), param="messages") from None
    ids = tuple(model.tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark))
    if not ids:
        raise InvalidValue("The messages render to an empty prompt", param="messages")
    return ids


def _rendered(
    template: ChatTemplate, turns: list[Turn], tools: Sequence[Mapping[str, Any]] | None, framing: Framing
) -> Rendered:
    """Many templates insist on turns that alternate; for those, turns of one role in a row are joined."""

    def rendered(turns: list[Turn]) -> Rendered:
        return template.render(
            turns,
            tools=tools,
            add_generation_prompt=framing.add_generation_prompt,
            continue_final_message=framing.continue_final_message,
            **framing.variables,
        )

    try:
        return rendered(turns)
    except ChatTemplateError as refused:
        alternating = joined(turns)
        if len(alternating) == len(turns):
            raise
        try:
            return rendered(alternating)
        except ChatTemplateError:
            raise refused from None


def joined(turns: Sequence[Turn]) -> list[Turn]:
    """Texts of one role that follow one another as one, with an empty line between them."""
    found: list[Turn] = []
    for turn in turns:
        if found and turn.keys() == found[-1].keys() == {"role", "content"} and turn["role"] == found[-1]["role"]:
            found[-1] = {**turn, "content": f"{found[-1]['content']}\n\n{turn['content']}"}
        else:
            found.append(turn)
    return found


def _turn(message: Message) -> Turn:
    turn: Turn = {"role": ROLES.get(message.role, message.role), "content": message.content or ""}
    if message.tool_calls:
        turn["tool_calls"] = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
    given = {"tool_call_id": message.tool_call_id, "name": message.name}
    return turn | {field: value for field, value in given.items() if value is not None}
