"""Messages become prompt ids, by the model's chat template. Shared by chat and /tokenize."""

from collections.abc import Mapping, Sequence
from typing import Any

from model.tokenizer.chat import ChatTemplateError
from server.api.serving import ServedModel
from server.api.tools.prompting import prompted
from server.api.types import Message
from server.engine.errors import InvalidValue, NoChatTemplate

# templates know "system"; OpenAI's newer name for it means the same
ROLES = {"developer": "system"}


def render(
    messages: Sequence[Message],
    model: ServedModel,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
) -> tuple[int, ...]:
    """Prompt ids of a conversation. Special tokens that a user typed stay text (the template's own ones count)."""
    if model.template is None:
        raise NoChatTemplate(f"{model.id} has no chat template; use /v1/completions", param="messages")
    turns = [_turn(message) for message in messages]
    if not model.family.in_template:
        turns, tools = prompted(turns, tools), None
    try:
        rendered = model.template.render(turns, tools=tools, add_generation_prompt=add_generation_prompt)
    except ChatTemplateError as error:
        raise InvalidValue(str(error), param="messages") from None
    ids = tuple(model.tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark))
    if not ids:
        raise InvalidValue("The messages render to an empty prompt", param="messages")
    return ids


def _turn(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": ROLES.get(message.role, message.role), "content": message.content or ""}
    if message.tool_calls:
        turn["tool_calls"] = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
    given = {"tool_call_id": message.tool_call_id, "name": message.name}
    return turn | {field: value for field, value in given.items() if value is not None}
