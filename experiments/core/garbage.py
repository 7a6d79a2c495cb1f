"""How often Python's collector of reference cycles runs in the lab's own processes."""

from __future__ import annotations

import gc

#: Python's own 700 new objects are few where a captured graph is millions of them that stay: collections took
#: a sixth of the time of captures and plans.
NEW_OBJECTS = 100_000


def collect_rarely() -> None:
    """Let the collector begin after 100,000 new objects, and go through the old ones more rarely still."""
    gc.set_threshold(NEW_OBJECTS, 20, 50)
