"""What every policy is: a frozen dataclass whose fields are its knobs, with a name and a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from experiments.core import knobs

FAMILIES = ("memory", "parallel", "compilation", "cluster", "serving")
MODES = ("simulated", "measured")
#: What a simulated run on a model reads: its captured step, the model itself, or the model where its sizes
#: are enough to know its operators and else the step.
STEP, MODEL, SIZES = "step", "model", "sizes"
#: How long deciding takes on a model of some hundred operators: less than a second, or a search of seconds or
#: minutes.
AT_ONCE, SECONDS, MINUTES = "at once", "seconds", "minutes"
EFFORTS = (AT_ONCE, SECONDS, MINUTES)
#: How the policies of a family do what they do, in the order in which pages group them.
MECHANISMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "memory": (
            *("offload", "recompute", "offload and recompute", "page on demand"),
            *("compress", "split the batch", "other memory"),
        ),
        "parallel": (
            *("data parallel", "sharded states", "pipeline", "asynchronous pipeline", "divided tensors"),
            *("searched layouts", "experts and tables", "parameter servers"),
        ),
        "compilation": ("as it is", "compile or capture", "rewrite the graph", "make kernels", "fewer bits"),
        "cluster": (
            *("in order", "least service first", "know how long jobs run", "predict how long jobs run"),
            *("deadlines", "fair division", "resize to the best use", "share devices", "guarantees"),
            "against fragments",
        ),
        "serving": (
            *("whole batches", "every iteration", "prompts apart from answers", "draft and verify"),
            *("place models", "share a device", "divide a model"),
        ),
    }
)
#: What contract tests ask of every policy of every family: its plan is legal, the same each time and survives
#: JSON, the smallest case costs what its closed form says, and nothing is better than its bound.
LAWS = ("legal", "repeatable", "survives_json", "closed_form", "bound")


class HiddenColumn(AttributeError):
    """A policy reads a column of its trace that it does not declare in ``sees``."""


@dataclass(frozen=True)
class Policy:
    """Base of the families' interfaces. A policy decides and returns a plan; it never executes one.

    A class without a ``name`` of its own is an interface or a shared base and is not registered. Paper and
    claims stand in the ``.toml`` of the same file name. What others have to know of a policy is said here, by
    the policy: no page, test or queue has a list of names.

    ``name``         what specs and pages call it (``vdnn-conv``).
    ``family``       one of ``FAMILIES``.
    ``mechanism``    how it does what it does, one of its family's ``MECHANISMS``; a baseline has none.
    ``modes``        how its plans can be carried out.
    ``workloads``    the kinds of workload that its runs read, by mode (``core.reading``).
    ``reads``        what a simulated run is made of where the workload is a model.
    ``effort``       how long deciding takes, one of ``EFFORTS``: the quick ones are asked first.
    ``quick``        knob values with which checks on a small workload meet all that it does, within seconds.
    ``retired``      knobs that it once had, which stored specs still name, each with what to do instead.
    ``exceptions``   the laws of the contract tests (``LAWS``) that do not apply to it, each with the reason.
    ``is_baseline``  whether it changes nothing: the family's others are compared with it.
    ``fp32_gradients``  whether its system keeps and reduces the gradients of bfloat16 weights in float32
                     unless it is told.
    """

    name: ClassVar[str] = ""
    family: ClassVar[str] = ""
    mechanism: ClassVar[str] = ""
    modes: ClassVar[tuple[str, ...]] = ("simulated",)
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    reads: ClassVar[str] = STEP
    effort: ClassVar[str] = AT_ONCE
    quick: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    retired: ClassVar[Mapping[str, str]] = MappingProxyType({})
    exceptions: ClassVar[Mapping[str, str]] = MappingProxyType({})
    is_baseline: ClassVar[bool] = False
    fp32_gradients: ClassVar[bool] = False

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        """What this policy needs and a workload lacks, by what its summary has ``told``; empty: nothing."""
        return ""

    @classmethod
    def lacks_live(cls, told: Mapping[str, Any]) -> str:
        """What it needs and the workload of a measured run lacks, likewise."""
        return cls.lacks(told)

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    def knob_values(self) -> dict[str, Any]:
        return knobs.dump(self)
