"""For the whole suite: torch's threads share a busy machine instead of spinning at each other's barriers.

OpenMP reads this when torch is first imported. With spinning teams, a second process on the machine slows every
step a tenfold or worse (docs/lab-notes.md).
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
