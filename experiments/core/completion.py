"""A spec with nothing left open: its policy found, every knob spelled out, mode and hardware agreeing."""

from __future__ import annotations

from dataclasses import replace

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.spec import RunSpec


def complete(spec: RunSpec) -> tuple[RunSpec, Policy]:
    """The spec with every knob spelled out, and its policy. Two specs that mean the same get the same id."""
    policy = registry.create(spec.family, spec.policy, spec.knobs)
    if spec.mode not in policy.modes:
        raise BadInput(
            f"{spec.policy} cannot be {spec.mode}", "spec.mode", "one of " + ", ".join(policy.modes)
        )
    if (spec.mode == "measured") != _is_here(spec.hardware):
        raise BadInput(
            f"mode {spec.mode} on hardware {spec.hardware!r}",
            "spec.hardware",
            "local (or local with overrides that plans are made for) if and only if measured",
        )
    return replace(spec, policy=policy.name, knobs=policy.knob_values()), policy


def _is_here(hardware: object) -> bool:
    return hardware == "local" or (isinstance(hardware, dict) and hardware.get("device") == "local")
