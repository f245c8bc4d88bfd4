"""How a chat request wants its conversation put to the model: template, its variables, and how the prompt ends.

Knows the body's fields; the rendering is `server.api.messages`'s.
"""

from typing import Any

from model.tokenizer.chat import FIXED, ChatTemplate
from server.api.messages import Framing
from server.api.serving import ServedModel
from server.api.types import ChatBody
from server.engine.errors import InvalidValue, UnsupportedValue


def template_of(body: ChatBody, model: ServedModel) -> ChatTemplate | None:
    """The request's own template where the operator allows it, else the model's. Raises UnsupportedValue."""
    if body.chat_template is None:
        return model.template
    if not model.trusts_templates:
        message = "chat_template is only served when the server was started with --trust-request-chat-template on"
        raise UnsupportedValue(message, param="chat_template")
    if model.template is not None:
        template = model.template.replaced(body.chat_template)
    else:
        tokenizer = model.tokenizer
        ids = {"bos_token": tokenizer.bos_id, "eos_token": min(tokenizer.eos_ids, default=None)}
        named = {name: tokenizer.name(token_id) for name, token_id in ids.items() if token_id is not None}
        template = ChatTemplate(body.chat_template, special_tokens=tokenizer.special_tokens, named_tokens=named)
    if template.problem is not None:
        raise InvalidValue(f"chat_template: {template.problem}", param="chat_template")
    return template


def framing_of(body: ChatBody, template: ChatTemplate | None, tools: Any) -> Framing:
    """Raises InvalidValue for what contradicts itself, and for variables that the template doesn't read."""
    goes_on = bool(body.continue_final_message)
    if goes_on and body.add_generation_prompt:
        raise InvalidValue(
            "continue_final_message and add_generation_prompt exclude each other", param="continue_final_message"
        )
    if goes_on and body.messages[-1].tool_calls:
        last = len(body.messages) - 1
        message = (
            f"messages[{last}].tool_calls: a message that ends with calls can't go on; what they brought comes next"
        )
        raise InvalidValue(message, param=f"messages[{last}].tool_calls")
    variables = body.chat_template_kwargs or {}
    known = template.variables if template else set()
    for name in variables:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            what = "always set" if name in FIXED else "not read by the chat template"
            param = f"chat_template_kwargs.{name[:64]}"
            raise InvalidValue(f"{param} is {what}; it reads {allowed}", param=param)
    return Framing(
        template=template,
        tools=tools,
        add_generation_prompt=not goes_on if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=goes_on,
        variables=variables,
    )
