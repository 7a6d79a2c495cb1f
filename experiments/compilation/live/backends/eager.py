"""``eager``: no compiler; the module itself, op by op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.compilation.live.backends.base import Compiled, Task


def build(task: Task, options: Mapping[str, Any]) -> Compiled:
    return Compiled(task.module, 0.0, 0.0)
