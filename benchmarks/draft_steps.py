"""Drafts of a live engine against those that are drawn: verifications and steps, which no clock changes.

    python -m benchmarks.draft_steps

The model, requests and knobs of `python -m experiments.validate --family serving`, all requests at once. The
acceptance is what other prompts had, as there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.serving.experiment.live_engines import run_steps
from experiments.serving.interface import Load, LoadCost, ServingPlan
from experiments.serving.interface.executor import StepExecutor
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator.priced import PricedSteps
from experiments.serving.simulator.step_prices import SheetPrice
from experiments.validate.serving import POLICIES, SERVED, acceptance_of, policy_of, requests_at

SEEDS, BLOCKS = (0, 1, 2), 1024


class Unit(LoadCost):
    """Every pass takes a second."""

    def stage_time(self, load: Load) -> Any:
        return np.ones_like(load.kv)


@dataclass
class Seen:
    """An executor whose verifications are counted: right drafts of each, by request."""

    executor: Any
    right: dict[int, list[int]] = field(default_factory=dict)

    def count_calls(self) -> StepExecutor:
        asked = self.executor.right_drafts

        def right_drafts(view: Any, request: int) -> int:
            found: int = asked(view, request)
            self.right.setdefault(request, []).append(found)
            return found

        self.executor.right_drafts = right_drafts
        executor: StepExecutor = self.executor
        return executor

    def row(self, name: str, plan: ServingPlan, output: Sequence[int]) -> str:
        drafts = int(POLICIES["speculative"]["draft_tokens"])
        found = [count for counts in self.right.values() for count in counts]
        each = np.mean([len(self.right[r]) / (output[r] - 1) for r in self.right])
        shares = np.bincount(found, minlength=drafts + 1) / len(found)
        told = ", ".join(f"{share:.1%}" for share in shares)
        return (
            f"{name}: {plan.passes} steps, {len(found)} verifications, {each:.4f} for a token in the mean of "
            f"requests, {np.mean(found):.2f} right; of 0 to {drafts} drafts right {told}"
        )


def main() -> None:
    """Print a line for each live and each simulated run."""
    live = importlib.import_module("experiments.serving.live")
    source, dtype = SERVED["cpu"]
    model, trace = live.build(source, dtype, 0, "cpu"), requests_at(1e9)
    output: list[int] = trace.output.tolist()
    policy = policy_of("speculative")
    assert isinstance(policy, PagedPolicy)
    share = 0.0
    for seed, name in ((1, "live, other prompts"), (0, "live")):
        prompts = live.prompts_of(trace, model.vocabulary, seed)
        seen = Seen(live.TorchSteps(model, BLOCKS, policy.block_size, prompts))
        plan = run_steps(trace, policy, BLOCKS, seen.count_calls())
        print(seen.row(name, plan, output), flush=True)
        share = share or acceptance_of(plan)
    drawn = policy_of("speculative", acceptance=share)
    assert isinstance(drawn, PagedPolicy)
    for seed in SEEDS:
        seen = Seen(PricedSteps(SheetPrice(Unit()), 0.0, drawn.speculation, seed))
        plan = run_steps(trace, drawn, BLOCKS, seen.count_calls())
        print(seen.row(f"drawn by {share:.4f}, seed {seed}", plan, output), flush=True)


if __name__ == "__main__":
    main()
