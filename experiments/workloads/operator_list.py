"""A list of tensor operators known by their sizes alone: what a kernel constructor or tuner is given without
a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What each kind of operator must say (first) and may say (second) about itself: names of its sizes.
OPERATOR_KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "matmul": (("m", "n", "k"), ("batch",)),
    "conv": (("x", "filters", "kernel"), ("stride", "padding", "dilation", "groups")),
    "pool": (("x", "kernel"), ("stride", "padding", "dilation")),
    "elementwise": (("shape",), ("operands",)),
    "reduce": (("shape", "over"), ()),
    "softmax": (("shape", "over"), ()),
}
#: Sizes that are one number.
SINGLE = frozenset({"m", "n", "k", "filters", "groups", "operands"})


@dataclass(frozen=True)
class Operator:
    """One operator: its kind and sizes, each a tuple of integers; ``dtype`` of all its tensors."""

    name: str
    kind: str
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtype: str = "float32"

    def one(self, name: str, default: int = 1) -> int:
        """A size that is one number."""
        return self.sizes.get(name, (default,))[0]


@dataclass(frozen=True)
class OperatorList:
    """Operators in the file's order, each under a name of its own.

    ``recorded``: seconds that other systems took, by system and then by operator, where they are known.
    """

    name: str
    operators: tuple[Operator, ...]
    recorded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.operators)
