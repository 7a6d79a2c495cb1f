"""Carries out one serving run.

The questions that policies are asked, and what each answer goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.core.policy import Policy
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.serving.experiment import (
    batching,
    deployment,
    measured,
    paged,
    partitioning,
    phases,
    sharing,
    splitting,
    switching,
)
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.deployment import DeploymentPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.partitioning import PartitioningPolicy
from experiments.serving.interface.phases import PhasePolicy
from experiments.serving.interface.sharing import SharingPolicy
from experiments.serving.interface.splitting import SplittingPolicy

Way = Callable[[RunSpec, Any, Progress], Result]

#: By question and mode what carries an answer out.
QUESTIONS: Mapping[type[Policy], Mapping[str, Way]] = {
    ServingPolicy: {"simulated": batching.serve_trace, "measured": measured.serve_here},
    PagedPolicy: {"simulated": paged.serve_paged, "measured": measured.serve_here},
    PhasePolicy: {"simulated": phases.serve_phases},
    PartitioningPolicy: {"simulated": partitioning.divide_model},
    DeploymentPolicy: {"simulated": deployment.serve_scenario},
    SplittingPolicy: {"simulated": splitting.divide_task},
    SharingPolicy: {"simulated": sharing.share_device, "measured": switching.switch_here},
}


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Carry out the policy's answer to the question that its class is asked."""
    way = next(QUESTIONS[kind][spec.mode] for kind in type(policy).__mro__ if kind in QUESTIONS)
    return way(spec, policy, progress)
