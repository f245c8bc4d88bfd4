"""Requests that are answered from the text side alone, in one piece: no engine works on them, nothing streams.

Knows how such a request is read, refused and counted; what it means is the endpoint's.
"""

from collections.abc import Callable

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from server.api.account import account_of
from server.api.body import read_body
from server.api.errors import json_response
from server.api.generate import GONE, count_refusal
from server.api.offload import run_sized
from server.api.serving import Serving
from server.api.wording import Fields
from server.engine.errors import RequestError, ServiceError
from server.metrics import Endpoint

# from the bytes of the body to the answer; raises RequestError or ServiceError
Work = Callable[[bytes], Fields]


async def answer_at_once(request: Request, serving: Serving, endpoint: Endpoint, work: Work) -> Response:
    """The JSON that `work` makes of the body. Raises what it raises."""
    account = account_of(request)
    account.endpoint = endpoint
    try:
        raw = await read_body(request)
        fields = await run_sized(len(raw), lambda: work(raw), serving.worker)
    except ClientDisconnect:
        account.outcome = "cancelled"
        serving.metrics.request_finished(endpoint, "cancelled")
        return Response(status_code=GONE)
    except (RequestError, ServiceError) as error:
        count_refusal(request, serving, endpoint, error)
        raise
    serving.metrics.request_finished(endpoint, "ok")
    return json_response(fields)
