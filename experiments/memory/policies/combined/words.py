"""What a composition is, in words and figures."""

from __future__ import annotations

from typing import Any

from experiments.core.units import human
from experiments.memory.interface import DeviceView, Recompute
from experiments.memory.planning.batch_parts import caveats
from experiments.memory.policies.combined.search import Found
from experiments.workloads.step import Step


def explain(found: Found, step: Step, device: DeviceView) -> dict[str, Any]:
    """Return what was chosen and why, and its figures."""
    composer, chosen, composed = found.composer, found.composition, found.composed
    lacking = human(step.live_peak - device.capacity, "bytes")
    clauses = [f"the step lacks {lacking} on the device", *state_words(found)]
    if found.plan.splits > 1:
        clauses.append(f"the batch runs in {found.plan.splits} parts, one update for all")
    if composed.recomputed:
        again = sum(isinstance(move, Recompute) for move in composed.moves)
        clauses.append(f"{human(composed.recomputed, 'bytes')} of activations run again, in {again} layers")
    if composed.offloaded:
        clauses.append(f"{human(composed.offloaded, 'bytes')} of activations go to the host and back")
    return {
        "chosen": "; ".join(clauses),
        "parts": found.plan.splits,
        "recomputed_bytes": composed.recomputed,
        "activation_bytes_offloaded": composed.offloaded,
        "updates_on_host": chosen.on_host,
        "updates": composer.state.count,
        "parameters_streamed": chosen.streamed,
        "least_seconds": composer.least_seconds(chosen),
        "estimated_seconds": found.estimate.step_time,
        **(caveats(step) if found.plan.splits > 1 else {}),
    }


def state_words(found: Found) -> list[str]:
    """Return where the optimizer's state and its parameters are."""
    state, chosen = found.composer.state, found.composition
    part = state.on_host(chosen.on_host)
    if part is None:
        return ["the model's state stays on the device"] if state.count else []
    size = human(part.bytes_of(state.step, part.states), "bytes")
    seconds = human(state.host_seconds(chosen.on_host), "s")
    some = f" of {chosen.on_host} of {state.count} parameters" if chosen.on_host < state.count else ""
    where = "pass through the device layer by layer" if chosen.streamed else "return to the device"
    return [f"the update{some} runs on the host in {seconds}, with {size} of state; its parameters {where}"]
