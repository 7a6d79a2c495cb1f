"""Carries out one run of a compilation policy.

The questions that policies are asked, and what each answer goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.compilation.experiment import measured, simulated, tuning
from experiments.compilation.interface import (
    CompilationPolicy,
    RecipePolicy,
    RewritePolicy,
)
from experiments.compilation.interface.blocks import SchedulingPolicy
from experiments.compilation.interface.control import ControlPolicy
from experiments.compilation.interface.launches import LaunchPolicy
from experiments.compilation.interface.tiles import TilePolicy
from experiments.compilation.interface.tuning import TuningPolicy
from experiments.core.errors import ImpossiblePlan
from experiments.core.policy import Policy
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.sources import load

Way = Callable[[RunSpec, Any, Progress], Result]

#: By question and mode what carries an answer out.
QUESTIONS: Mapping[type[CompilationPolicy], Mapping[str, Way]] = {
    RecipePolicy: {"measured": measured.follow_recipe},
    LaunchPolicy: {"measured": measured.follow_recipe, "simulated": simulated.replay_launches},
    ControlPolicy: {"measured": measured.choose_levels},
    RewritePolicy: {"measured": measured.run_rewrite, "simulated": measured.price_rewrite},
    TilePolicy: {"measured": measured.run_tiles, "simulated": simulated.price_tiles},
    SchedulingPolicy: {"measured": measured.run_blocks, "simulated": simulated.play_blocks},
    TuningPolicy: {"measured": tuning.tune_operators, "simulated": tuning.replay_log},
}


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Carry out the policy's answer.

    An impossible one ends ``rejected`` with the first violation as its reason.
    """
    try:
        return way_of(type(policy), spec.mode)(spec, policy, progress)
    except ImpossiblePlan as error:
        sha256 = load(spec.workload).sha256
        return Result.from_violations(error.violations, workload_sha256=sha256)


def way_of(policy: type[Policy], mode: str) -> Way:
    """Return what carries out the answers of ``policy`` in ``mode``: that of the question it is asked."""
    return next(QUESTIONS[kind][mode] for kind in policy.__mro__ if kind in QUESTIONS)
