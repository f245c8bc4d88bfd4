"""A whole server on a tiny model: what clients see, one at a time and all at once."""

import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.helpers.live_server import LiveServer, at_once

pytestmark = pytest.mark.e2e

LONG = {"ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def complete(server: LiveServer, prompt: Any, **fields: Any) -> Any:
    body = {"prompt": prompt, "max_tokens": 12} | LONG | fields
    return server.request("POST", "/v1/completions", body)


def test_it_says_what_it_serves_and_how_to_ask(server: LiveServer) -> None:
    said = "\n".join(server.output)
    for word in ("kvell is ready", "http://127.0.0.1:", "tiny", "2048 tokens", "KV cache", "MiB", "curl -N"):
        assert word in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_printed_curl_line_works_when_it_is_pasted(server: LiveServer) -> None:
    line = next(line for line in server.output if "curl -N" in line).partition("try")[2].strip()
    pasted = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    assert pasted.stdout.startswith('data: {"id":"chatcmpl-')
    assert pasted.stdout.endswith("data: [DONE]\n\n")


def test_the_api_process_never_imports_torch(server: LiveServer) -> None:
    complete(server, "hi")
    assert "torch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "torch" in Path(f"/proc/{server.engine_pid}/maps").read_text()


def test_openai_s_client_lists_the_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_openai_s_client_chats(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "max_tokens": 10,
        "extra_body": {"ignore_eos": True},
    }
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 10
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.content or []) == 10
    text, reasons, usages = "", [], []
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons.append(choice.finish_reason)
        usages.append(chunk.usage)
    assert text == whole.choices[0].message.content
    assert [reason for reason in reasons if reason] == ["length"]
    assert usages[:-1] == [None] * (len(usages) - 1)
    assert usages[-1].completion_tokens == 10


def test_openai_s_client_completes(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": ["a", "b"], "n": 2, "temperature": 0, "max_tokens": 6}
    whole = client.completions.create(**asked)
    texts = {0: "", 1: "", 2: "", 3: ""}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert texts[0] == texts[1] != texts[2]


def test_openai_s_client_reads_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as found:
        client.completions.create(model="tiny", prompt="a", temperature=7)
    assert found.value.param == "temperature"
    assert found.value.code == "invalid_value"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="huge", prompt="a")


def test_32_clients_at_once_each_get_their_own_answer(server: LiveServer) -> None:
    prompts = [f"{'shared beginning of some length ' * (n % 3)}and number {n}" for n in range(32)]
    alone = [complete(server, prompt, max_tokens=24).text() for prompt in prompts]
    together = at_once(*(lambda p=prompt: complete(server, p, max_tokens=24, stream=True).text() for prompt in prompts))
    assert together == alone
    server.until_idle()
    assert server.figure('kvell_kv_cache_blocks{state="used"}') == 0


def test_bad_requests_beside_good_ones_disturb_nobody(server: LiveServer) -> None:
    good = [complete(server, f"good {n}").text() for n in range(4)]
    bad = [
        lambda: complete(server, [10**7]),
        lambda: complete(server, "x", logit_bias={"99999999": 1}),
        lambda: complete(server, "x", n=-1),
        lambda: server.request("POST", "/v1/completions", raw=b'{"prompt": "a", "temperature": NaN}'),
        lambda: complete(server, "x " * 5000),
        lambda: server.request("POST", "/v1/completions", raw=b"[" * 100_000),
    ]
    jobs = [job for n in range(4) for job in (lambda n=n: complete(server, f"good {n}").text(), *bad)]
    results = at_once(*jobs)
    assert results[:: len(bad) + 1] == good
    statuses = {result.status for number, result in enumerate(results) if number % (len(bad) + 1)}
    assert statuses == {400}
    assert server.request("GET", "/ready").status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_its_generation(server: LiveServer, stream: bool) -> None:
    names = ("kvell_generation_tokens_total", "kvell_discarded_tokens_total")
    before = sum(map(server.figure, names))
    body = json.dumps({"prompt": "go on", "max_tokens": 2000, "stream": stream} | LONG).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    server.until(lambda: server.figure("kvell_requests_running") == 1, "it never ran")
    connection.close()
    server.until_idle()
    assert sum(map(server.figure, names)) - before < 1500, "it was computed to the end"
    assert server.figure('kvell_kv_cache_blocks{state="used"}') == 0


def test_usage_and_figures_agree_over_a_mixed_load(server: LiveServer) -> None:
    server.until_idle()
    names = ("kvell_prompt_tokens_total", "kvell_cached_prompt_tokens_total", "kvell_generation_tokens_total")
    before = [server.figure(name) for name in names]
    jobs = [
        lambda n=n: complete(
            server, f"figures {n}", max_tokens=5 + n, stop=["a", "e"] if n % 2 else None, stream=n % 3 == 0, **usage(n)
        )
        for n in range(9)
    ]
    answers = at_once(*jobs)
    usages = [(answer.json() if n % 3 else answer.events()[-2])["usage"] for n, answer in enumerate(answers)]
    rose = [server.figure(name) - value for name, value in zip(names, before, strict=True)]
    assert rose == [
        sum(each["prompt_tokens"] for each in usages),
        sum(each["prompt_tokens_details"]["cached_tokens"] for each in usages),
        sum(each["completion_tokens"] for each in usages),
    ]


def usage(number: int) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}} if number % 3 == 0 else {}


def test_a_repeated_prompt_comes_from_the_cache_and_says_the_same(server: LiveServer) -> None:
    prompt = "a prompt that is longer than two blocks of sixteen tokens, to be sure"
    first, again = complete(server, prompt), complete(server, prompt)
    assert again.text() == first.text()
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
    assert again.json()["usage"]["prompt_tokens"] == first.json()["usage"]["prompt_tokens"]


def test_a_seed_reproduces_and_the_drawn_one_is_reported(server: LiveServer) -> None:
    drawn = complete(server, "dice", temperature=1)
    again = complete(server, "dice", temperature=1, seed=int(drawn.headers["x-kvell-seed"]))
    assert again.text() == drawn.text()
    assert complete(server, "dice", temperature=1).text() != drawn.text()


def test_an_idle_connection_and_a_half_sent_request_hold_up_nobody(server: LiveServer) -> None:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address), socket.create_connection(address) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert complete(server, "hi").status == 200


def raw(server: LiveServer, *parts: bytes) -> bytes:
    """What a server answers to these bytes, up to the end of the first answer's head."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while b"\r\n\r\n" not in answer:
            received = connection.recv(65536)
            assert received, answer
            answer += received
        return answer


def test_a_body_over_the_limit_is_refused_before_it_is_sent(server: LiveServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
    assert raw(server, head).startswith(b"HTTP/1.1 413 ")


def test_a_body_in_chunks_is_one_body(server: LiveServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"prompt": "a", "max_tokens": 1}'
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])]
    assert raw(server, head, *chunks, b"0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_what_is_no_http_is_a_400_and_disturbs_nobody(server: LiveServer) -> None:
    assert raw(server, b"\x16\x03\x01 hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert complete(server, "hi").status == 200


def test_a_client_that_stops_reading_holds_up_nobody(server: LiveServer) -> None:
    with server.stream("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1500, "stream": True} | LONG):
        assert complete(server, "hi").status == 200
        server.until_idle()
    assert complete(server, "hi").status == 200
