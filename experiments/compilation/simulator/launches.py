"""One simulated run of a policy about launches: the model's kernels by roofline on a named device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.compilation.interface.launches import LaunchPolicy, times
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.hardware import resolve
from experiments.sources import model_of, step_of


def replay_launches(spec: RunSpec, policy: LaunchPolicy, progress: Progress) -> Result:
    """Return every op that moves data is a kernel: its roofline time, and never shorter than the shortest."""
    options = replace(spec.workload.options, training=policy.training)
    workload = replace(spec.workload, options=options)
    model_of(workload)
    device = resolve(spec.hardware).device
    step, loaded = step_of(workload, device, progress)
    prices = policy.prices
    kernels = np.maximum(step.ops.seconds[~step.ops.view], prices.shortest)
    found = times(kernels.tolist(), prices.launch, prices.replay)
    return Result(
        metrics={"latency": found.replayed, "speedup": found.speedup, "kernels": found.kernels},
        plan={
            "recipe": {"backend": "cuda_graph", "options": policy.knob_values()},
            "report": {
                "eager_seconds": found.eager,
                "launching_seconds": found.launching,
                "bound": found.bound,
            },
        },
        workload_sha256=loaded.sha256,
        notes={"device": device.name, "kernels": "modeled by roofline, not measured"},
    )
