"""Messages become prompt ids, by the model's chat template. Shared by chat and /tokenize."""

from collections.abc import Sequence

from model.tokenizer.chat import ChatTemplateError
from server.api.serving import ServedModel
from server.api.types import Message
from server.engine.errors import InvalidValue, NoChatTemplate

# templates know "system"; OpenAI's newer name for it means the same
ROLES = {"developer": "system"}


def render(messages: Sequence[Message], model: ServedModel, *, add_generation_prompt: bool = True) -> tuple[int, ...]:
    """Prompt ids of a conversation. Special tokens that a user typed stay text (the template's own ones count)."""
    if model.template is None:
        raise NoChatTemplate(f"{model.id} has no chat template; use /v1/completions", param="messages")
    turns = [_turn(message) for message in messages]
    try:
        rendered = model.template.render(turns, add_generation_prompt=add_generation_prompt)
    except ChatTemplateError as error:
        raise InvalidValue(str(error), param="messages") from None
    ids = tuple(model.tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark))
    if not ids:
        raise InvalidValue("The messages render to an empty prompt", param="messages")
    return ids


def _turn(message: Message) -> dict[str, str]:
    turn = {"role": ROLES.get(message.role, message.role), "content": message.content or ""}
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn
