"""Tools for a model whose chat template knows nothing of them: told in the system message, in Hermes' form.

Earlier calls become text of the assistant's, what they brought becomes text of the user's.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from server.api.tools.hermes import CLOSE, OPEN

Turn = dict[str, Any]

INSTRUCTIONS = """You can call functions. These are the functions, one JSON object per line:
<tools>
{tools}
</tools>
To call one, write nothing but its name and its arguments as a JSON object between these tags, once for every call:
{open}
{{"name": "function name", "arguments": {{"argument": "value"}}}}
{close}
If no function helps, answer without the tags."""


def prompted(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]] | None) -> list[Turn]:
    """The conversation in messages of plain text. Without tools only what was called before is put into words."""
    plain = [_plain(turn) for turn in turns]
    if not tools:
        return plain
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    told = INSTRUCTIONS.format(tools=listed, open=OPEN, close=CLOSE)
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _plain(turn: Turn) -> Turn:
    if turn["role"] == "tool" and "tool_call_id" in turn:
        return {"role": "user", "content": f"<tool_response>\n{turn['content']}\n</tool_response>"}
    if not turn.get("tool_calls"):
        return turn
    calls = [_said(call["function"]) for call in turn["tool_calls"]]
    return {"role": turn["role"], "content": "\n".join([*filter(None, [turn["content"]]), *calls])}


def _said(function: Mapping[str, str]) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'{OPEN}\n{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}\n{CLOSE}'
