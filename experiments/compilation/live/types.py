"""Ops by name: which function one is, how it behaves, and the types of its results, inferred by
torch itself.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import _side_effectful_functions as side_effectful

from experiments.compilation.interface import IllTyped, Signature, Symbol, TensorType

# What a refused op would log is in the error that it raises.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)

#: What torch raises on arguments that do not fit an op.
MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def qualified_name(function: Any) -> str:
    """Return ``aten.add.Tensor``; an op over graphs (``cond``) as ``higher_order.cond``."""
    if isinstance(function, HigherOrderOperator):
        return f"higher_order.{function._name}"
    return str(function)


def function(target: str) -> Any:
    """Return the op of that name. Raises ``IllTyped`` where this torch has none."""
    found: Any = torch.ops
    for part in target.split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError) as error:
            raise IllTyped(f"torch {torch.__version__} has no op {target}") from error
    return found


def behavior(op: Any) -> dict[str, bool]:
    """Return the flags of a ``Node``, from the op's schema; an op without one counts as mutating."""
    schema: Any = getattr(op, "_schema", None)
    if schema is None:
        return {"mutates": not isinstance(op, HigherOrderOperator)}
    aliased = [result.alias_info for result in schema.returns if result.alias_info is not None]
    return {
        "random": torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()),
        "mutates": bool(schema.is_mutable),
        "effect": not schema.returns or op in side_effectful,
        "views": any(not info.is_write for info in aliased),
    }


def gives_several(op: Any) -> bool:
    """Return whether the op returns a tuple or list, of whatever length, instead of one value."""
    schema: Any = getattr(op, "_schema", None)
    if schema is None:
        return isinstance(op, HigherOrderOperator)
    return len(schema.returns) != 1 or isinstance(schema.returns[0].type, torch.ListType)


def types_of(value: Any) -> tuple[TensorType | None, ...]:
    """Return the types of an op's results; ``None`` for a result that is no tensor."""
    several = value if isinstance(value, tuple | list) else (value,)
    return tuple(_type(entry) if isinstance(entry, torch.Tensor) else None for entry in several)


def _type(value: torch.Tensor) -> TensorType:
    shape = tuple(int(size) for size in value.shape)
    return TensorType(shape, str(value.dtype).removeprefix("torch."), tuple(int(s) for s in value.stride()))


class Inference:
    """``Types`` by fake tensors on ``device``, each question asked once."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._mode = FakeTensorMode()
        self._known: dict[Any, Signature | str] = {}

    def __call__(
        self, target: str, arguments: tuple[Any, ...], keywords: tuple[tuple[str, Any], ...]
    ) -> Signature:
        key = (target, arguments, keywords, _kinds((arguments, keywords)))
        if key not in self._known:
            self._known[key] = self._infer(target, arguments, keywords)
        known = self._known[key]
        if isinstance(known, str):
            raise IllTyped(known)
        return known

    def fake_call(self, target: str, arguments: Any, keywords: Any) -> tuple[Any, dict[str, Any], Any]:
        """Arguments, keywords and result of one call on fake tensors."""
        with self._mode, torch.no_grad():
            args, kwargs = self._fake(arguments), {name: self._fake(value) for name, value in keywords}
            return args, kwargs, function(target)(*args, **kwargs)

    def _infer(self, target: str, arguments: Any, keywords: Any) -> Signature | str:
        op = function(target)
        try:
            value = self.fake_call(target, arguments, keywords)[2]
        except MISFITS as error:
            return (
                f"{target}: "
                f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
            )
        return Signature(types_of(value), **behavior(op))

    def _fake(self, value: Any) -> Any:
        if isinstance(value, TensorType):
            return torch.empty_strided(
                value.shape, value.stride, dtype=getattr(torch, value.dtype), device=self.device
            )
        if isinstance(value, tuple):
            return [self._fake(entry) for entry in value]
        return constant(value)


def _kinds(value: Any) -> Any:
    """1, 1.0 and True are equal as keys but not to an op."""
    if isinstance(value, tuple):
        return tuple(_kinds(entry) for entry in value)
    return type(value).__name__


def constant(value: Any) -> Any:
    """Return ``value`` with torch's own constant in place of its ``Symbol``."""
    if not isinstance(value, Symbol):
        return value
    return torch.device(value.name) if value.kind == "device" else getattr(torch, value.name)
