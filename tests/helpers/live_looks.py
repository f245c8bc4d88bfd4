"""Looks as `/live` sends them, and a server that sends nothing else, which can go and come again on its port."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# as a server sent them: idle, at work, and full with sequences that share and preempt
IDLE: dict[str, Any] = {
    "model": "tiny",
    "state": "ready",
    "picture": [{"blocks_per_cell": 1, "runs": [0, 1024]}],
    "running": 0,
    "waiting": 0,
    "preemptions": 0,
    "tokens_per_second": {"prompt": 0.0, "decode": 0.0},
    "time_to_first_token_seconds": None,
    "groups": [{"used": 0, "cached": 0, "free": 1024, "block_bytes": 16384}],
}
AT_WORK: dict[str, Any] = IDLE | {
    "picture": [{"blocks_per_cell": 1, "runs": [3, 5, 4, 3, 2, 2, 1, 6, 0, 1008]}],
    "running": 2,
    "preemptions": 7,
    "tokens_per_second": {"prompt": 12.5, "decode": 123.4},
    "time_to_first_token_seconds": 0.0421,
    "groups": [{"used": 10, "cached": 6, "free": 1008, "block_bytes": 16384}],
}


class Looks:
    """`GET /live` answers with these looks and then waits for more; a look None ends the stream."""

    def __init__(self, looks: Sequence[dict[str, Any] | None], port: int = 0) -> None:
        over = self._over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for look in looks:
                    if look is None:
                        return
                    self.wfile.write(f"data: {json.dumps(look)}\n\n".encode())
                    self.wfile.flush()
                over.wait()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._over.set()
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def serving_looks(*looks: dict[str, Any] | None, port: int = 0) -> Iterator[Looks]:
    server = Looks(looks, port)
    threading.Thread(target=server.server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
