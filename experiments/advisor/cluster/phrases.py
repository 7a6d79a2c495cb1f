"""A plan in words: as a row names it, and as the answer's first half."""

from __future__ import annotations

from experiments.advisor.cluster.candidates import Candidate

STATES = {
    1: "The optimizer's state is",
    2: "Gradients and the optimizer's state are",
    3: "Weights, gradients and the optimizer's state are",
}
RECOMPUTED = {
    "none": "nothing recomputed",
    "selective": "attention cores recomputed",
    "blocks": "every block checkpointed",
    "full": "everything checkpointed",
}
#: The parts of a plan that a row names, where they divide anything.
DEGREES = (("tensor", "TP"), ("pipeline", "PP"), ("expert", "EP"), ("context", "CP"))


def say_recomputation(candidate: Candidate) -> str:
    return (
        "blocks checkpointed by operator"
        if candidate.saves_operators
        else RECOMPUTED[candidate.layout.recompute]
    )


def degrees(candidate: Candidate) -> str:
    """``TP 4 x PP 4 x DP 16``."""
    layout = candidate.layout
    parts = [f"{short} {getattr(layout, name)}" for name, short in DEGREES if getattr(layout, name) > 1]
    return " x ".join([*parts, f"DP {candidate.replicas}"])


def in_a_row(candidate: Candidate) -> str:
    """What tells the plan from others, without figures."""
    layout = candidate.layout
    states = f"ZeRO {layout.zero}" if layout.zero else "states whole"
    parts = [degrees(candidate), states, f"micro-batch {layout.micro_batch}", say_recomputation(candidate)]
    parts += [f"{layout.interleaved} chunks a device"] * (layout.interleaved > 1)
    parts += ["optimizer on the host"] * layout.host_optimizer
    return ", ".join(parts)


def finding(candidate: Candidate) -> str:
    """The first half of the answer: what to do, as an act."""
    layout = candidate.layout
    ending = {
        "none": "recompute nothing",
        "selective": "recompute attention cores",
        "full": "checkpoint everything",
    }
    again = ending.get(layout.recompute, "checkpoint every block")
    again = "checkpoint every block by operator" if candidate.saves_operators else again
    host = ", update on the host" if layout.host_optimizer else ""
    return f"{_division(candidate)}{host}, and {again}"


def _division(candidate: Candidate) -> str:
    layout, devices = candidate.layout, candidate.devices
    if candidate.divides_data_alone:
        sharded = {
            0: f"Copy the model to each of the {devices:,} GPUs (data parallel)",
            1: f"Divide the optimizer's state over the {devices:,} GPUs (ZeRO 1)",
            2: f"Divide gradients and optimizer state over the {devices:,} GPUs (ZeRO 2)",
            3: f"Shard everything over the {devices:,} GPUs (ZeRO 3 or FSDP)",
        }
        return f"{sharded[layout.zero]}, no tensor or pipeline parallelism"
    acts = [f"each layer over {layout.tensor} GPUs (TP {layout.tensor})"] * (layout.tensor > 1)
    acts += [f"the layers over {layout.pipeline} stages (PP {layout.pipeline})"] * (layout.pipeline > 1)
    acts += [f"the experts over {layout.expert} GPUs (EP {layout.expert})"] * (layout.expert > 1)
    acts += [f"each sequence over {layout.context} GPUs (CP {layout.context})"] * (layout.context > 1)
    states = f" with ZeRO {layout.zero}" if layout.zero and candidate.replicas > 1 else ""
    copies = f", {candidate.replicas:,} replicas{states}" if candidate.replicas > 1 else ""
    return f"Divide {' and '.join([', '.join(acts[:-1]), acts[-1]]) if len(acts) > 1 else acts[0]}{copies}"
