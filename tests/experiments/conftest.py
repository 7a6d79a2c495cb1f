"""What the domain's tests share."""

from __future__ import annotations

import importlib.util
import logging

import pytest

# torch writes a debug record for every fake tensor to this logger when it has a handler, and pytest gives one
# to each logger that does not propagate: captures would take ten times as long.
logging.getLogger("torch.__trace").addHandler = lambda handler: None  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _short_series() -> None:
    """Measured runs take their pairs of times in a moment: no test is about how sharp such a figure is."""
    if importlib.util.find_spec("torch"):
        from experiments.compilation.live import timing

        timing.SECONDS = dict.fromkeys(timing.SECONDS, 0.02)
