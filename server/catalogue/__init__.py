"""Models by name: where they come from and where they are kept. `resolve` turns what a user wrote into a path.

Knows wheels, hubs and the user's cache directory; knows nothing of what is inside a model. Imports no torch.
"""

from server.catalogue.errors import ModelUnavailable
from server.catalogue.pull import pull
from server.catalogue.resolve import Resolved, names, resolve

__all__ = ["ModelUnavailable", "Resolved", "names", "pull", "resolve"]
