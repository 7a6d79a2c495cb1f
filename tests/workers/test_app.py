"""What the processes of the lab load to start."""

from __future__ import annotations

import subprocess
import sys

BEAT = """
import sys
from workers.app import app
app.loader.init_worker()
print(*sorted(name for name in sys.modules if name in {"workers.tasks", "webapp.urls", "torch", "scipy"}))
"""


def test_beat_loads_neither_the_tasks_that_it_sends_nor_the_pages() -> None:
    """They would make 97 MB of it 140, and a third more of its start."""
    told = subprocess.run([sys.executable, "-c", BEAT], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
