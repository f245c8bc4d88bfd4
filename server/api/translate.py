"""The other APIs' requests in the words of chat completions, so that one path checks and prepares them all.

Knows the wire types of both sides and nothing else: no model, no engine, no HTTP.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from server.api.types import anthropic, responses
from server.engine.errors import RequestError

Chat = dict[str, Any]  # as JSON has it, for `server.api.fields.parse`

SAME = ("model", "temperature", "top_p", "top_k", "min_p", "seed", "ignore_eos", "stream")


def chat_of_response(body: responses.ResponsesBody) -> Chat:
    """The chat request that asks for the same."""
    messages: list[Chat] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    for item in body.input:
        _add_item(messages, item)
    scored = "message.output_text.logprobs" in (body.include or ()) or body.top_logprobs
    chat = {
        "messages": messages,
        "max_completion_tokens": body.max_output_tokens,
        "logprobs": True if scored else None,
        "top_logprobs": (body.top_logprobs or 0) if scored else None,
        "response_format": _response_format(body.text),
        "tools": [_function(tool) for tool in body.tools or ()] or None,
        "tool_choice": _tool_choice(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
    }
    return _given(chat | {name: getattr(body, name) for name in SAME})


def _add_item(messages: list[Chat], item: responses.Item) -> None:
    if isinstance(item, responses.FunctionCall):
        _add_call(messages, item.call_id, item.name, item.arguments)
    elif isinstance(item, responses.FunctionCallOutput):
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _joined(item.output)})
    else:
        messages.append({"role": item.role, "content": _joined(item.content)})


def _add_call(messages: list[Chat], call_id: str, name: str, arguments: str) -> None:
    """Calls belong to the assistant's turn that they follow; where there is none, they begin one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    messages[-1].setdefault("tool_calls", []).append(call)


def _response_format(text: responses.TextConfig | None) -> Chat | None:
    wanted = text.format if text else None
    if isinstance(wanted, responses.SchemaFormat):
        schema = {"name": wanted.name, "schema": wanted.schema_, "strict": wanted.strict}
        return {"type": "json_schema", "json_schema": _given(schema | {"description": wanted.description})}
    return None if wanted is None else {"type": wanted.type}


def _function(tool: responses.FunctionTool) -> Chat:
    function = tool.model_dump(exclude_none=True, exclude={"type"})
    return {"type": "function", "function": function}


def _tool_choice(choice: responses.ToolChoice | None) -> object:
    if isinstance(choice, responses.NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    return None if choice is None else choice.type


def chat_of_messages(body: anthropic.CountTokensBody) -> Chat:
    """The chat request that asks for the same; of a CountTokensBody, its prompt and nothing more."""
    messages: list[Chat] = []
    if body.system:
        messages.append({"role": "system", "content": _joined(body.system)})
    for turn in body.messages:
        _add_turn(messages, turn)
    wanted = body.output_config.format if body.output_config else None
    schema = {"name": "answer", "schema": wanted.schema_, "strict": True} if wanted else None
    chat: Chat = {
        "model": body.model,
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": schema} if schema else None,
        "tools": [_client_tool(tool) for tool in body.tools or ()] or None,
        "continue_final_message": True if body.messages[-1].role == "assistant" else None,
        **_choice_of(body.tool_choice),
    }
    if isinstance(body, anthropic.MessagesBody):
        chat |= {name: getattr(body, name) for name in SAME}
        chat |= {"max_completion_tokens": body.max_tokens, "stop": body.stop_sequences}
    return _given(chat)


def _add_turn(messages: list[Chat], turn: anthropic.Turn) -> None:
    """A turn's texts in one message; what calls brought, in messages of their own before them."""
    results = [block for block in turn.content if isinstance(block, anthropic.ToolResult)]
    texts = [block for block in turn.content if isinstance(block, anthropic.TextBlock)]
    for result in results:
        content = ("Error: " if result.is_error else "") + _joined(result.content or ())
        messages.append({"role": "tool", "tool_call_id": result.tool_use_id, "content": content})
    if texts or isinstance(turn, anthropic.AssistantTurn):
        messages.append({"role": turn.role, "content": _joined(texts) if texts else None})
    for block in turn.content:
        if isinstance(block, anthropic.ToolUse):
            _add_call(messages, block.id, block.name, json.dumps(block.input, ensure_ascii=False))


def _client_tool(tool: anthropic.ClientTool) -> Chat:
    function = {"name": tool.name, "parameters": tool.input_schema, "strict": tool.strict}
    return {"type": "function", "function": _given(function | {"description": tool.description})}


def _choice_of(choice: anthropic.ToolChoice | None) -> Chat:
    if choice is None:
        return {}
    named = {"type": "function", "function": {"name": choice.name}}
    word = {"auto": "auto", "any": "required", "none": "none", "tool": named}[choice.type]
    alone = choice.disable_parallel_tool_use
    return {"tool_choice": word, "parallel_tool_calls": None if alone is None else not alone}


def _joined(parts: Iterable[Any]) -> str:
    return "".join(part.text for part in parts)


def _given(fields: Mapping[str, Any]) -> Chat:
    return {name: value for name, value in fields.items() if value is not None}


@contextmanager
def reworded(names: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Errors of the chat request are told in the words of the other API: parts of a field's path by another name."""
    try:
        yield
    except RequestError as error:
        if error.param is not None:
            path = error.param
            for theirs, ours in names:
                path = path.replace(theirs, ours)
            if error.message.startswith(error.param):
                error.message = path + error.message.removeprefix(error.param)
            error.param = path
        raise
