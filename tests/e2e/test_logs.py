"""What a real server writes: in JSON, every line an object, whoever wrote it; no key and no prompt in any of them."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer, open_pidfd
from tests.helpers.tiny_model_dir import make_model_dir

pytestmark = pytest.mark.e2e

SMALL = ("--threads", "1", "--kv-cache-memory", "64MiB", "--log-format", "json", "--log-level", "debug")
KEY, SECRET = "sk-swordfish", "marlin is the codeword"
EVIL = "/x%0A%7B%22level%22:%22info%22%7D%0D%0Ay%20outcome=ok"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveServer, list[dict[str, Any]]]]:
    """Of a server that was asked, lost its engine and ended; every line that it wrote."""
    model = make_model_dir(tmp_path_factory.mktemp("models") / "tiny")
    with LiveServer(str(model), *SMALL, env={"KVELL_API_KEY": KEY}) as server:
        server.wait_ready()
        server.headers = {"Authorization": f"Bearer {KEY}"}
        ask = {"prompt": SECRET, "max_tokens": 4, "user": SECRET}
        for headers in (server.headers, {"x_api_key": KEY}, {"x_api_key": "wrong-" + KEY}):
            server.request("POST", "/v1/completions", ask, x_request_id="mine", **headers)
        server.request("POST", "/v1/completions", ask | {SECRET: SECRET}, **server.headers)
        server.request("GET", EVIL, **server.headers)
        signal.pidfd_send_signal(open_pidfd(server.engine_pid), signal.SIGKILL)
        server.until(lambda: server.figure("kvell_engine_restarts_total") == 1, "no new engine")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        yield server, [json.loads(line) for line in server.errors]


def test_every_line_is_an_object_with_time_level_logger_and_message(records: Any) -> None:
    server, found = records
    assert server.output == []
    for record in found:
        assert {"time", "level", "logger", "message"} <= set(record)


def test_the_start_is_a_record(records: Any) -> None:
    (ready,) = [record for record in records[1] if record["message"] == "kvell is ready"]
    assert ready["address"].startswith("http://127.0.0.1:")
    assert ready["cache_tokens"] > 0


def test_each_request_is_a_record(records: Any) -> None:
    asked = [record for record in records[1] if record["message"] == "POST /v1/completions"]
    assert [record["outcome"] for record in asked] == ["ok", "ok", "refused", "refused"]
    assert [record.get("key") for record in asked] == ["default", "default", None, "default"]
    first = asked[0]
    assert (first["id"], first["output_tokens"], first["status"]) == ("mine", 4, 200)
    assert 0 <= first["queue_s"] <= first["first_token_s"] <= first["total_s"]


def test_nobody_forged_a_line(records: Any) -> None:
    (evil,) = [record for record in records[1] if record.get("status") == 404]
    assert evil["message"] == "GET /x%0A%7B%22level%22:%22info%22%7D%0D%0Ay%20outcome%3Dok"


def test_the_engine_s_death_is_a_record(records: Any) -> None:
    (death,) = [record for record in records[1] if "SIGKILL" in record["message"]]
    assert (death["level"], death["logger"]) == ("error", "server.engine.service")


def test_no_key_and_no_prompt_is_anywhere(records: Any) -> None:
    written = "\n".join(records[0].errors)
    assert "swordfish" not in written
    assert "marlin" not in written
