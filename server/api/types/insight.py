"""The fields that ask how an answer came about."""

from server.api.types.wire import TopLogprobs, Wire


class InsightFields(Wire):
    """Seeing inside."""

    prompt_logprobs: TopLogprobs | None = None
    return_token_ids: bool | None = None
    kvell_receipt: bool | None = None
