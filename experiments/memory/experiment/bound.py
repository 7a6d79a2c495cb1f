"""What no plan that only moves plain bytes can beat: the link between the fullest op and the ends of the
step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.memory.interface import MemoryMachine
from experiments.workloads.step import Floats, Step


def swapping_bound(step: Step, machine: MemoryMachine) -> dict[str, Any]:
    """``swapping_bound`` with the excess bytes and the shortest step; nothing where the step fits.

    While op i runs, what was made in this step and exceeds the device, even if every persistent tensor that i
    does not use were away, has left since the step began and returns before it ends; all of it passes the
    host link. Plans that recompute, compress or use tensors where they are resident are not bound by this.
    """
    if step.live_peak <= machine.capacity or not len(step.ops):
        return {}
    excess = np.maximum(0, step.live_bytes - _idle_persistent(step) - machine.capacity).astype(np.float64)
    clock = np.concatenate(([0.0], np.cumsum(step.ops.seconds)))
    before = np.maximum(clock[:-1], _passing(excess, machine.out.bandwidth, machine.sharers))
    after = np.maximum(clock[-1] - clock[:-1], _passing(excess, machine.back.bandwidth, machine.sharers))
    op = int(np.argmax(before + after))
    return {
        "swapping_bound": {
            "excess_bytes": int(excess[op]),
            "op": op,
            "step_time": float(max(before[op] + after[op], clock[-1])),
            "ideal_share": float(clock[-1] / max(before[op] + after[op], clock[-1])),
        }
    }


def _idle_persistent(step: Step) -> Floats:
    """Bytes of persistent tensors that each op does not use."""
    used = [int(step.tensors.bytes[row[step.persistent[row]]].sum()) for row in step.touched]
    return step.persistent_bytes - np.array(used, np.float64)


def _passing(size: Floats, bandwidth: float, sharers: int) -> Floats:
    if bandwidth <= 0:
        return np.where(size > 0, np.inf, 0.0)
    return size * sharers / bandwidth
