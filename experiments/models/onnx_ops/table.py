"""What an operator's function is given, and the table that the other modules fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from experiments.workloads.program import DType


class How(NamedTuple):
    """A node's ``attributes``, the version of the operator set, and how the model runs now.

    ``stored`` is the file's main type of real numbers, ``real`` what the model computes in instead.
    """

    attributes: Mapping[str, Any]
    version: int
    training: bool
    stored: str
    real: torch.dtype

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def dtype(self, wanted: DType) -> torch.dtype:
        if wanted.name == self.stored:
            return self.real
        found: torch.dtype = getattr(torch, wanted.name)
        return found


@dataclass(frozen=True)
class Operator:
    """The function of an ONNX operator, and what it wants of its arguments.

    ``host`` are the positions of arguments that must be known before the graph runs (shapes, axes, limits):
    plain numbers and lists. ``numbers``: a stored single number is passed as a Python number, not as a
    tensor.
    """

    function: Callable[..., Any]
    host: frozenset[int] = frozenset()
    numbers: bool = False


OPERATORS: dict[str, Operator] = {}


def operator(
    *names: str, host: tuple[int, ...] = (), numbers: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the function into the table under each of ``names``."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in OPERATORS:
                raise RuntimeError(f"two functions for operator {name!r}")
            OPERATORS[name] = Operator(function, frozenset(host), numbers)
        return function

    return enter
