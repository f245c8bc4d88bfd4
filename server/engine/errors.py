"""What can be wrong with a request or with the engine, each with its HTTP status and code.

`RequestError` is the user's fault: raised at the door, with the value and the limit in its message.
"""


class RequestError(Exception):
    """Bad or impossible request. param is the field's name as the user wrote it."""

    status = 400
    type = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidValue(RequestError):
    """A field has a value that it can't have."""

    code = "invalid_value"


class UnknownField(RequestError):
    """A field that this endpoint does not know."""

    code = "unknown_parameter"


class UnsupportedValue(RequestError):
    """A field or value that OpenAI's API knows and this server does not serve."""

    code = "unsupported_value"


class CannotReplay(RequestError):
    """A receipt is of another model, or of other kernels than these."""

    code = "cannot_replay"


class ModelNotFound(RequestError):
    """Another model was asked for than the one served."""

    status = 404
    code = "model_not_found"


class PromptTooLong(RequestError):
    """Prompt and answer don't fit the context, or can never fit the KV cache."""

    code = "context_length_exceeded"


class NoChatTemplate(RequestError):
    """Chat was asked of a model that has no chat template."""

    code = "no_chat_template"


class UnsupportedEndpoint(RequestError):
    """A path that OpenAI's or Anthropic's API has and this server does not serve."""

    code = "unsupported_endpoint"


class CondemnedRequest(RequestError):
    """The engine died of exactly this request, twice."""

    code = "condemned_request"


class RequestNotFound(RequestError):
    """Nothing that runs has this id."""

    status = 404
    code = "request_not_found"


class RequestCancelled(RequestError):
    """Someone cancelled this request by its id. 499 because clients try again after 408, 409, 429 and 5xx."""

    status = 499
    type = "cancelled"
    code = "request_cancelled"


class ServiceError(Exception):
    """Not the user's fault. retry_after is in seconds."""

    status = 503
    type = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class EngineUnavailable(ServiceError):
    """The engine is starting, restarting or gone; or it died while working on this request."""

    code = "engine_unavailable"


class Draining(ServiceError):
    """The server is shutting down and takes no new work."""

    code = "shutting_down"


class TooBusy(ServiceError):
    """More requests wait than the server is set to hold."""

    code = "overloaded"


class TooManyRequests(TooBusy):
    """More requests of this key wait than its limits allow."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class ClientTooSlow(ServiceError):
    """A stream is read so slowly that too much of it had to be held."""

    status = 408
    type = "invalid_request_error"
    code = "client_too_slow"


class GenerationFailed(ServiceError):
    """The engine could not go on with this one request."""

    status = 500
    code = "generation_failed"


class StartupFailed(Exception):
    """The engine can't start, and it is up to the user. The message is one line for them."""
