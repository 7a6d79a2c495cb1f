"""Functions that the host runs itself, between the graphs that it launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

#: Dynamo leaves the decorated function to Python and compiles what it calls, each callee as a graph of its
#: own.
run_by_host = cast(
    Callable[[Function], Function],
    torch._dynamo.disable(recursive=False),
)
