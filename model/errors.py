"""What can be wrong with a checkpoint. Each message is one clear line: the command prints it and exits with code 1."""


class CheckpointError(Exception):
    """A model that cannot be served as it is on disk. str() is one line for the person who started the server.

    Names out of damaged or hostile files can be in it: control characters are spelled out, whatever they would do.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


class UnknownArchitecture(CheckpointError):
    """No family in `model.families` describes this model_type."""

    def __init__(self, model_type: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown model architecture {model_type!r}; kvell serves {', '.join(known)}")
        self.model_type = model_type


class UnsupportedConfig(CheckpointError):
    """A known family with a setting that the decoder does not have, or a value that cannot be."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"config: {key} = {value!r} is not supported; {allowed}")
        self.key = key
