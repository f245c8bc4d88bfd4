"""Whether the long versions of tests are wanted: `make test-contract`. The short ones prove the same on fewer cases."""

import os

COMPLETE = os.environ.get("KVELL_TEST_COMPLETE") == "1"
