"""Questions to a live server, greedy and short, and what counts as the same answer where kernels aren't bit-exact."""

from typing import Any

from tests.helpers.live_server import Got, LiveServer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TIE = 0.1  # in natural-log probability; quantised weights in float32 move by far less


def complete(server: LiveServer, prompt: Any, **fields: Any) -> Got:
    """A greedy completion of 16 tokens, unless fields say otherwise."""
    return server.request("POST", COMPLETIONS, {"prompt": prompt, "temperature": 0, "max_tokens": 16} | fields)


def chat(server: LiveServer, content: Any, **fields: Any) -> Got:
    """A greedy reply to one user message, of 16 tokens, unless fields say otherwise."""
    messages = [{"role": "user", "content": content}]
    return server.request("POST", CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16} | fields)


def usage_of(got: Got) -> dict[str, Any]:
    """The usage object; of a stream, its last chunk's."""
    body = got.events()[-2] if got.headers["content-type"].startswith("text/event-stream") else got.json()
    usage: dict[str, Any] = body["usage"]
    return usage


def finish_of(got: Got) -> list[str]:
    """Every reason for ending, in order."""
    bodies = got.events()[:-1] if got.headers["content-type"].startswith("text/event-stream") else [got.json()]
    reasons = [choice["finish_reason"] for body in bodies for choice in body["choices"]]
    return [reason for reason in reasons if reason is not None]


def same_but_for_ties(server: LiveServer, prompt: str, one: str, other: str) -> bool:
    """Equal, or parting at a place where the model's two best tokens are nearly equally likely."""
    if one == other:
        return True
    at = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    common = one[:at]
    gaps = []
    for start in {common, common.rpartition(" ")[0]}:
        found = complete(server, prompt + start, max_tokens=4, logprobs=2).json()["choices"][0]["logprobs"]
        gaps += [max(top.values()) - min(top.values()) for top in found["top_logprobs"]]
    return min(gaps) < TIE
