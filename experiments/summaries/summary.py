"""The question that is asked of every kind of workload."""

from __future__ import annotations

import functools
from typing import Any


@functools.singledispatch
def summary(value: Any) -> dict[str, Any]:
    """Cards and plots of a workload of any kind."""
    raise TypeError(f"no summary of {type(value).__name__}")
