"""The least seconds of reruns with which a small step runs in a capacity, by going through everything.

``least[k][r]`` are the seconds still to come when op ``k`` is next and the tensors in the bits of ``r`` are
resident, worked out from the last op to the first; within an op, by repeating every drop and every rerun on
all sets at once until nothing gets better.
"""

from __future__ import annotations

import numpy as np

from experiments.workloads.step import Step


def least_reruns(step: Step, capacity: int) -> float:
    """Seconds; infinite where no schedule fits. A tensor that several ops write is never made again."""
    local = [t for t in range(len(step.tensors)) if not step.persistent[t]]
    bit = {t: 1 << i for i, t in enumerate(local)}
    sets = np.arange(1 << len(local))
    held = sum(((sets & bit[t]) > 0) * int(step.tensors.bytes[t]) for t in local) + step.persistent_bytes
    inputs, outputs, count = step.inputs.lists(), step.outputs.lists(), len(step.ops)

    def bits(tensors) -> int:
        return sum({bit[t] for t in tensors if t in bit})

    def room_for(tensors, workspace):
        return capacity - workspace - sum(int(step.tensors.bytes[t]) for t in set(tensors))

    def writers(tensor):
        return [op for op in range(count) if tensor in outputs[op]]

    least = np.zeros(len(sets))
    for op in reversed(range(count)):
        before = {t for o in range(op) for t in (*inputs[o], *outputs[o])}
        touched = {*inputs[op], *outputs[op]}
        needed, new = bits(touched & before), bits(touched - before)
        fits = held <= room_for([t for t in touched - before if t in bit], int(step.ops.workspace[op]))
        now = np.where(((sets & needed) == needed) & fits, least[sets | new], np.inf)
        reruns = []
        for again in range(op):
            whole = all(t in bit and len(writers(t)) == 1 for t in outputs[again])
            same = all(not any(again < w < op for w in writers(t)) for t in inputs[again])
            if whole and same:
                reads = bits(inputs[again])
                fits = held <= room_for(outputs[again], int(step.ops.workspace[again]))
                allowed = ((sets & reads) == reads) & fits
                reruns.append((allowed, sets | bits(outputs[again]), float(step.ops.seconds[again])))
        while True:
            better = now
            for one in bit.values():
                better = np.minimum(better, better[sets & ~one])
            for allowed, after, seconds in reruns:
                better = np.where(allowed, np.minimum(better, better[after] + seconds), better)
            if (better == now).all():
                break
            now = better
        least = now
    return float(least[0])
