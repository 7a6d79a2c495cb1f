"""What every policy is: a frozen dataclass whose fields are its knobs, with a name and a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core import knobs

FAMILIES = ("memory", "parallel", "compilation", "cluster", "serving")
MODES = ("simulated", "measured")
#: What a simulated run on a model reads: its captured step, the model itself, or the model where its sizes are enough to
#: know its operators and else the step.
STEP, MODEL, SIZES = "step", "model", "sizes"


@dataclass(frozen=True)
class Policy:
    """Base of the families' interfaces. A policy decides and returns a plan; it never executes one.

    ``name`` is what specs and pages call it (``vdnn-conv``), ``family`` one of ``FAMILIES``, ``modes`` how its
    plans can be carried out, ``reads`` what they are made of where the workload is a model. A class without a ``name`` of its own is an interface or a shared base and is not
    registered. Paper and claims stand in the ``.toml`` of the same file name.
    """

    name: ClassVar[str] = ""
    family: ClassVar[str] = ""
    modes: ClassVar[tuple[str, ...]] = ("simulated",)
    reads: ClassVar[str] = STEP

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    def knob_values(self) -> dict[str, Any]:
        return knobs.dump(self)
