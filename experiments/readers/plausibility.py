"""What makes a recorded step hard to believe."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from experiments.core.errors import BadInput
from experiments.hardware import resolve
from experiments.workloads.step import Step

#: A whole training step that reaches less of the peak than this was not timed on that device, or not as it
#: is.
LEAST_MFU = 0.02


def low_utilization(step: Step, device_name: str, flops: float | None = None) -> tuple[str, ...]:
    """A warning where the step's FLOPs (or ``flops``) over its time are under 2 % of the device's peak.

    The peak is that of the type that most FLOPs are of. Nothing is said of a device without a sheet, or of a
    step of unknown FLOPs or times.
    """
    total = float(np.nansum(step.ops.flops)) if flops is None else flops
    if not total > 0 or not math.isfinite(step.seconds) or step.seconds <= 0:
        return ()
    try:
        device = resolve(device_name).device
        peak = device.peak(_main_type(step))
    except BadInput:
        return ()
    mfu = total / (step.seconds * peak)
    if mfu >= LEAST_MFU:
        return ()
    return (f"MFU {mfu:.2%} of {device.name} ({_main_type(step)}): under {LEAST_MFU:.0%} is implausible",)


def _main_type(step: Step) -> str:
    totals: Counter[str] = Counter()
    for dtype, flops in zip(step.ops.dtype, step.ops.flops.tolist(), strict=True):
        totals[dtype] += int(flops) if math.isfinite(flops) else 0
    return totals.most_common(1)[0][0] if totals else "float32"
