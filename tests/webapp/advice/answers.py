"""An answer of the advisor as a worker leaves it: two plans, one of them with a name that wants escaping."""

from __future__ import annotations

from typing import Any

GIB = 2**30
QUESTION = {
    "hardware": {"cluster": {"node": "dgx-h100", "nodes": 1}},
    "goal": "time",
    "margin": 0.1,
    "options": {"batch": 128},
}


def plan(letter: str, peak: float, seconds: float, **knobs: Any) -> dict[str, Any]:
    spec = {
        "family": "parallel",
        "policy": "zero",
        "workload": {"source": "/somewhere/config.json", "format": "hf", "options": {"batch": 128}},
        "hardware": QUESTION["hardware"],
        "knobs": knobs,
        "mode": "simulated",
        "seed": 0,
    }
    named = {"letter": letter, "name": f"<b>plan</b> {letter}", "policy": "zero", "why": "because"}
    figures = {"peak": peak * GIB, "seconds": seconds, "mfu": 0.44, "price": seconds / 7}
    return {**named, **figures, "spec": spec, "spec_id": letter * 64}


def answer() -> dict[str, Any]:
    plans = [plan("A", 71, 7.0, stage=2), plan("B", 60, 7.7, stage=3)]
    points = [
        {"name": "x", "peak": p["peak"], "seconds": p["seconds"], "fits": True, "letter": p["letter"]}
        for p in plans
    ]
    points += [{"name": "far", "peak": 900.0 * GIB, "seconds": 7.0, "fits": False, "letter": ""}]
    facts = {
        "plans": 100,
        "evaluated": 60,
        "simulated": 9,
        "devices": 8,
        "nodes": 1,
        "hardware": "1x dgx-h100",
    }
    facts |= {
        "batch": 128,
        "sequence": 4096,
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "goal": "time",
        "margin": 0.1,
    }
    return {
        "finding": "Divide gradients over the 8 GPUs",
        "price": "7 s a step, 44 % MFU, 71 GiB of 80 GiB",
        "explanation": ["C is 2 % faster and leaves 4 GiB, less than the 10 % kept free."],
        "facts": facts,
        "device": "h100-80g",
        "capacity": 80.0 * GIB,
        "allowed": 72.0 * GIB,
        "reasons": [{"what": "Gradients are divided", "why": "It frees 86 GiB a GPU."}],
        "plans": plans,
        "points": points,
        "rejected": [
            {"idea": "Pipelines", "plans": 50, "reason": "50 of 50 fit, the fastest 1 % slower"},
            {"idea": "Not evaluated: heads do not divide by tensor", "plans": 40, "reason": "arithmetic"},
        ],
        "settings": [
            {"dialect": "torch", "language": "python", "text": "import torch", "notes": ["a note"]},
            {"dialect": "DeepSpeed", "language": "json", "text": "{}", "notes": []},
            {"dialect": "Megatron-LM", "language": "shell", "text": "--bf16", "notes": []},
        ],
        "seconds": 2.5,
    }
