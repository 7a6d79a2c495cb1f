"""What a pass of a served model costs on an instance: by the times that its trace brings, else the spec's."""

from __future__ import annotations

from typing import Any

from experiments.core.errors import BadInput
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.models.served import ServedModel
from experiments.serving.interface import RooflineCost, ServingPlan
from experiments.serving.interface.phases import InstanceShape
from experiments.serving.interface.step_load import StepPrice
from experiments.serving.simulator.step_prices import ProfilePrice, SheetPrice, TablePrice
from experiments.workloads.profiles.layer_times import LayerTimes
from experiments.workloads.profiles.phase_times import PhaseTimes

#: Per cent of a run's time below which no figure is told of it.
LEAST_SHARE = 0.1
WHERE = "spec.workload.options.extra"


def price_of(
    profile: Any, model: ServedModel, hardware: Hardware, dtype: str, shape: InstanceShape
) -> tuple[StepPrice, dict[str, Any]]:
    """The price of a pass through one stage of ``shape``, and in words where that comes from."""
    node = hardware.node
    match profile:
        case None:
            fits = shape.devices <= node.device_count
            cost = RooflineCost(
                model,
                node.device,
                dtype,
                DTYPE_BYTES[dtype],
                ranks=shape.tensor,
                stages=shape.pipeline,
                rank_link=node.link,
                stage_link=node.link if fits else hardware.network,
            )
            return SheetPrice(cost), {"cost": "roofline of the spec sheet"}
        case LayerTimes():
            if (profile.ranks, 1) != (shape.tensor, shape.pipeline):
                what = f"it was measured on {profile.ranks} devices, a stage has {shape.tensor}"
                raise BadInput(what, f"profile {profile.name}", f"a folder tp{shape.tensor}, and one stage")
            link = node.link if shape.tensor > 1 else None
            return ProfilePrice(profile, model, link), {"cost": f"layer profile {profile.name}"}
        case PhaseTimes():
            degrees = profile.degrees(model.name, node.device.name)
            if shape.pipeline > 1 or shape.tensor not in degrees:
                what = f"{model.name} on {shape.tensor} of {node.device.name} was not measured"
                raise BadInput(what, f"table {profile.name}", _known(profile))
            return TablePrice(degrees[shape.tensor]), {"cost": f"prompt and token times of {profile.name}"}
    what = f"{type(profile).__name__} tells nothing of a model that serves"
    raise BadInput(what, WHERE, "a layer profile (dense.csv, attention.csv ...) or prompt and token times")


def measured_shapes(profile: Any, model: ServedModel, hardware: Hardware) -> list[InstanceShape] | None:
    """The shapes that a profile has figures for; ``None``: those of a sheet hold for any."""
    match profile:
        case LayerTimes():
            return [InstanceShape(1, profile.ranks)]
        case PhaseTimes():
            return [InstanceShape(1, tensor) for tensor in profile.degrees(model.name, hardware.device.name)]
    return None


def _known(profile: PhaseTimes) -> str:
    rows = sorted({f"{key.model} on {key.tensor} {key.device}" for key in profile.passes})
    return ", ".join(rows[:12])


def doubts_of(plan: ServingPlan) -> list[str]:
    """What a person should know of times that were priced beyond what was measured."""
    total = sum(row.end - row.start for row in plan.iterations)
    if not total or not plan.extrapolated_seconds:
        return []
    share = 100 * plan.extrapolated_seconds / total
    told = f"{share:.1f} %" if share >= LEAST_SHARE else f"Under {LEAST_SHARE} %"
    return [f"{told} of the time was priced beyond the profile's grid"]
