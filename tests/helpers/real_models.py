"""The catalogue's models, for tests that need a real one. Fetched as a user's would be, or the test is skipped."""

import os
from pathlib import Path

import pytest

from server.catalogue import ModelUnavailable, resolve


def real_model(name: str) -> Path:
    """The local file of a catalogue model. One with terms needs KVELL_ACCEPT_TERMS=1, unless it is here already."""
    try:
        return resolve(name, accept_terms=os.environ.get("KVELL_ACCEPT_TERMS") == "1").path
    except ModelUnavailable as error:
        pytest.skip(str(error))
