"""Behind a key nothing opens without it, whatever is asked; and no key and no prompt reaches the log of a real server.

The log is at its most talkative level: the others write some of these lines.
"""

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.helpers.live_server import LiveServer
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

KEYS = ("sk-flag-0451aa", "sk-file-7c3e91")
WRONG = "sk-wrong-d15ea5e"
PROMPT = "swordfish hides beneath marzipan"
SECRETS = (*KEYS, WRONG, "swordfish", "marzipan")
OPEN = ("/health", "/ready")
FORMS = ["human", "json"] if os.environ.get("KVELL_TEST_COMPLETE") else ["human"]  # `make test-disk`
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


@pytest.fixture(scope="module", params=FORMS)
def locked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("locked")
    model = make_model_dir(folder / "tiny")
    (folder / "keys").write_text(f"team: {KEYS[1]}\n")
    settings = ("--api-key-file", str(folder / "keys"), "--log-level", "debug", "--log-format", request.param)
    kept = ("--prefix-cache-dir", str(folder / "kept"))
    small = ("--threads", "1", "--kv-cache-memory", "64MiB")
    with LiveServer(str(model), *small, *settings, *kept, env={"KVELL_API_KEY": KEYS[0]}) as live:
        live.headers = {"Authorization": f"Bearer {KEYS[0]}"}
        yield live.wait_ready()


def known_paths(server: LiveServer) -> list[str]:
    """What the server itself says that there is, with something in each place that is open."""
    described = server.request("GET", "/openapi.json", **server.headers)
    assert described.status == 200
    return sorted(re.sub(r"\{[^}]*\}", "abc", path) for path in described.json()["paths"])


def status_of(connection: http.client.HTTPConnection, method: str, path: str, **headers: str) -> int:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_crawl_without_a_key_finds_nothing_open(locked: LiveServer) -> None:
    known = known_paths(locked)
    assert {"/v1/completions", "/metrics", "/v1/models/abc", "/", "/health"} <= {*known, "/"}
    tricks = ["/health/", "//health", "/health/../metrics", "/ready/x", "/%68ealth", "/HEALTH", "/health;x", "/.env"]
    unknown = [
        "/",
        "/nowhere",
        "/v1",
        "/v2/models",
        "/docs",
        "/redoc",
        "/v1/embeddings",
        "*",
        "/%00",
        "/%C3%A9",
    ]
    connection = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=60)
    opened: set[tuple[str, str]] = set()
    with contextlib.closing(connection):
        for path in {*known, *tricks, *unknown, *(f"{path}?key={WRONG}" for path in known)}:
            for method in METHODS:
                if status_of(connection, method, path) != 401:
                    opened.add((method, path.partition("?")[0]))
    assert {path for _, path in opened} <= {*OPEN, "/%68ealth"}, opened
    for path in OPEN:
        assert locked.request("GET", path).status == 200


def basic(key: str) -> str:
    return "Basic " + base64.b64encode(f"user:{key}".encode()).decode()


def test_no_key_and_no_prompt_is_in_the_log(locked: LiveServer) -> None:
    for key in (*KEYS, WRONG):
        for headers in ({"Authorization": f"Bearer {key}"}, {"x_api_key": key}, {"Authorization": basic(key)}):
            assert (locked.request("GET", "/v1/models", **headers).status == 200) == (key != WRONG)
            ask_everything(locked, headers, key)
    send_nonsense(locked)
    before = len(locked.errors)
    with locked.stream(
        "POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 2000, "stream": True}, **locked.headers
    ) as opened:
        opened.read_events(3)
        os.kill(locked.engine_pid, signal.SIGKILL)
        opened.rest()
    locked.until(lambda: any("sequences were in it" in line for line in locked.errors[before:]), "it said nothing")
    log = "\n".join(locked.errors + locked.output)
    assert log.count("/v1/completions") > 20
    assert "Traceback" not in log
    assert "status=500" not in log
    for secret in SECRETS:
        for form in (secret, quote(secret), secret.encode().hex(), secret.upper()):
            assert form not in log, next(line for line in log.split("\n") if form in line)
        assert base64.b64encode(f"user:{secret}".encode()).decode()[:20] not in log


def ask_everything(server: LiveServer, headers: dict[str, str], key: str) -> None:
    """Every kind of request, right and wrong, with the secret in every place that has room for it."""
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2}
    bodies: list[tuple[str, object]] = [
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "user": PROMPT, "stop": [PROMPT]}),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "cache_salt": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT, "swordfish": "marzipan"}),
        ("/v1/completions", {"prompt": PROMPT, "model": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT * 2000}),
        ("/v1/completions", {"prompt": PROMPT, "structured_outputs": {"regex": "(swordfish"}}),
        ("/v1/completions", {"prompt": PROMPT, "structured_outputs": {"grammar": "start: marzipan"}}),
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", chat | {"metadata": {"swordfish": PROMPT}}),
        ("/v1/chat/completions", chat | {"messages": [{"role": "swordfish", "content": PROMPT}]}),
        ("/v1/chat/completions", chat | {"tools": [{"type": "function", "function": {"name": "swordfish!"}}]}),
        ("/v1/responses", {"input": PROMPT, "max_output_tokens": 2}),
        ("/v1/messages", chat),
        ("/v1/messages/count_tokens", chat),
        ("/tokenize", {"prompt": PROMPT}),
        ("/detokenize", {"tokens": [5, 6, 7], "swordfish": 1}),
        ("/v1/completions/render", {"prompt": PROMPT}),
        ("/v1/replay", {"kvell": {"receipt": PROMPT}}),
        ("/v1/swordfish/marzipan", {"prompt": PROMPT}),
        (f"/v1/models/{key}", {}),
        (f"/v1/completions?api_key={key}&q={quote(PROMPT)}", {"prompt": "a", "max_tokens": 1}),
        (f"/{key}/v1/completions", {"prompt": PROMPT}),
    ]
    extra = headers | {"x_secret": key, "Referer": f"http://x/?key={key}", "User-Agent": PROMPT, "Cookie": f"k={key}"}
    for path, body in bodies:
        assert server.request("POST", path, body, **extra).status < 500, path
    for raw in (b'{"prompt": "swordfish', b"swordfish", b'{"swordfish": 1, "swordfish": 2}', b'{"prompt": 1e999}'):
        assert server.request("POST", "/v1/completions", raw=raw, **extra).status in (400, 401)
    assert server.request("POST", "/v1/completions", {}, **extra | {"Content_Type": f"text/{key}"}).status in (
        400,
        401,
        415,
    )
    assert server.request("DELETE", f"/v1/requests/{key}", **extra).status < 500
    assert server.request("MARZIPAN", f"/v1/models/{key}", **extra).status < 500


def send_nonsense(server: LiveServer) -> None:
    """What is no HTTP, and what ends in the middle."""
    whole = json.dumps({"prompt": PROMPT})
    for sent in (
        b"swordfish marzipan\r\n\r\n",
        f"GET /{KEYS[0]} HTTP/1.1\r\nAuthorization: Bearer {KEYS[0]}\r\nswordfish\r\n\r\n".encode(),
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
        + f"X-Api-Key: {KEYS[0]}\r\nContent-Length: 999\r\n\r\n{whole}".encode(),
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
