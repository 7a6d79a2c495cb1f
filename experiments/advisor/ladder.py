"""The changes that are tried where a step does not fit, in their order, each added to those before.

Which kernels and policies stand for them:
- checkpointing is what ``gradient_checkpointing_enable`` of Transformers, ``enable_activation_checkpointing``
  of torchtune and fairscale's wrappers do to a transformer: what enters a layer is kept, and the whole layer
  is recomputed in the backward pass (``selective_recompute``, ``full``). A step in which that finds no layers
  has borders between segments instead (``checkpoint``, as ``checkpoint_sequential``). Both plan the same
  whatever the device's memory is.
- 8-bit state is the form of the optimizer asked for whose name ends so.
- offload is ``combined``: it moves state and activations to the host, recomputes and cuts the batch, each as
  much as the fastest plan that fits needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import OPTIMIZERS, WorkloadOptions


@dataclass(frozen=True)
class Way:
    """A policy with its knobs; ``adapts``: more memory gives another plan, not the same one with room."""

    policy: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    adapts: bool = False


#: How an optimizer's name ends that keeps its state in 8 bits.
EIGHT_BITS = "8bit"
AS_IT_IS = (Way("baseline"),)
CHECKPOINTING = (Way("selective_recompute", {"select": "full"}), Way("checkpoint"))
OFFLOAD = (Way("combined", adapts=True),)


@dataclass(frozen=True)
class Setting:
    """How a model is trained: options, the optimizer that they mean, and policies.

    ``ways``      policies of which the first that finds something to do is taken.
    ``changed``   rungs that changed the options, by name.
    ``by``        the rung that chose the policies; empty for none.
    ``gives_up``  how the result of training differs from that of what was asked, in words.
    """

    options: WorkloadOptions
    optimizer: str | None
    ways: tuple[Way, ...] = AS_IT_IS
    changed: tuple[str, ...] = ()
    by: str = ""
    gives_up: tuple[str, ...] = ()

    def with_options(self, name: str, gives_up: tuple[str, ...] = (), **changes: Any) -> Setting:
        """Return the setting with ``changes``; ``BadInput`` where it has them already."""
        options = replace(self.options, **changes)
        if options == self.options:
            option, value = next(iter(changes.items()))
            raise BadInput(f"{value} is what was asked for", f"options.{option}", "another value")
        return replace(
            self, options=options, changed=(*self.changed, name), gives_up=(*self.gives_up, *gives_up)
        )


def fuse_loss(setting: Setting) -> Setting:
    """Take head and loss by chunks of tokens: no logits of all of them at once."""
    return setting.with_options("fused loss", loss="fused")


def checkpoint(setting: Setting) -> Setting:
    """Keep what enters each layer, and recompute the layer."""
    return replace(setting, ways=CHECKPOINTING, by="checkpointing")


def shrink_state(setting: Setting) -> Setting:
    """Take the optimizer's form with state in 8 bits."""
    if setting.optimizer is None:
        raise BadInput("a step without training has no optimizer", "options.optimizer", "a training step")
    name = setting.optimizer + EIGHT_BITS
    known = [one.removesuffix(EIGHT_BITS) for one in OPTIMIZERS if one.endswith(EIGHT_BITS)]
    if setting.optimizer.endswith(EIGHT_BITS):
        raise BadInput(f"{setting.optimizer} is what was asked for", "options.optimizer", "another optimizer")
    if setting.optimizer not in known:
        what = f"{setting.optimizer} has no form with state in 8 bits"
        raise BadInput(what, "options.optimizer", "one of " + ", ".join(known))
    rounded = f"the state of {setting.optimizer} is rounded to 8 bits"
    return replace(setting.with_options("8-bit state", (rounded,), optimizer=name), optimizer=name)


def add_adapters(setting: Setting) -> Setting:
    """Add LoRA to all linear layers but the head, of the options' rank."""
    if setting.options.adapter != "none":
        raise BadInput(f"{setting.options.adapter} is what was asked for", "options.adapter", "adapter none")
    return setting.with_options("LoRA", ("only adapters are trained",), adapter="lora")


def shrink_base(setting: Setting) -> Setting:
    """Store the frozen weights of a model with adapters in 4 bits."""
    if setting.options.adapter == "none":
        raise BadInput(
            "no weights are frozen: there are no adapters", "options.base", "an adapter, lora or dora"
        )
    if setting.options.base.startswith("nf4"):
        raise BadInput(f"{setting.options.base} is what was asked for", "options.base", "base plain or int8")
    return setting.with_options("NF4", ("frozen weights are rounded to 4 bits",), base="nf4")


def offload(setting: Setting) -> Setting:
    """Move state and activations to the host, in place of plain checkpointing."""
    return replace(setting, ways=OFFLOAD, by="offload")


@dataclass(frozen=True)
class Rung:
    """One change, and what it is called; ``change`` raises ``BadInput`` where it does not apply."""

    name: str
    change: Callable[[Setting], Setting]


LADDER = (
    Rung("fused loss", fuse_loss),
    Rung("checkpointing", checkpoint),
    Rung("8-bit state", shrink_state),
    Rung("LoRA", add_adapters),
    Rung("NF4", shrink_base),
    Rung("offload", offload),
)
