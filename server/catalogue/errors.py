"""What can go wrong between a model's name and its file."""

from model.errors import CheckpointError


class ModelUnavailable(CheckpointError):
    """The model can't be had: unknown name, unaccepted terms, no network, a file with the wrong digest. One line."""
