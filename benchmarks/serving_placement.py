"""How long placements of 24 BERT-2.6B on 16 V100 take, and what they attain (goal: AlpaServe in 30 s).

    python -m benchmarks.serving_placement

40 requests a second together for a minute, in bursts (gamma, variation 4), within five times a pass.
"""

from __future__ import annotations

import time

from experiments.core import registry
from experiments.hardware import resolve
from experiments.serving.experiment.deployment import deploy_and_serve, deployment_of
from experiments.serving.interface.deployment import DeploymentPolicy
from experiments.serving.simulator.deployment import deployment_figures
from experiments.workloads.scenario import PublishedSizes, Scenario, ScenarioModel

HARDWARE = {"cluster": {"nodes": 2, "devices_per_node": 8, "device": "v100-16g"}}
MODELS, RATE, DURATION, SCALE = 24, 40.0, 60.0, 5.0
POLICIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("alpaserve", {}),
    ("selective_replication", {}),
    ("selective_replication", {"search": "uniform"}),
    ("clockwork", {"window": 10.0}),
    ("nexus", {}),
)


def scenario(slo: float) -> Scenario:
    """The models with an objective of ``slo`` s."""
    cost, each = PublishedSizes("bert-2.6b", 2048), RATE / MODELS
    rows = (
        ScenarioModel(f"bert-{place}", cost, slo, each, "gamma", 4.0, bytes=5.3e9) for place in range(MODELS)
    )
    return Scenario("24 BERTs", DURATION, tuple(rows))


def row(name: str, knobs: dict[str, object], slo: float) -> str:
    """One policy's line: CPU seconds of placement and simulation, and its attainment."""
    policy = registry.create("serving", name, knobs)
    assert isinstance(policy, DeploymentPolicy)
    started = time.process_time()
    ran = deploy_and_serve(scenario(slo), resolve(HARDWARE), policy, seed=0)
    seconds = time.process_time() - started
    figures = deployment_figures(ran.plan, ran.deployment, ran.asked, DURATION)
    told = ", ".join(f"{key} {value}" for key, value in knobs.items())
    return f"{name:24}{told:20}{seconds:8.2f} s{figures['slo_attainment']:10.2%} in time"


def main() -> None:
    """Print a line for each policy."""
    alone = deployment_of(scenario(1.0), resolve(HARDWARE)).models[0].alone()
    print(f"{MODELS} models, 16 devices, {RATE:g} requests/s, objective {SCALE:g} x {alone * 1e3:.0f} ms")
    for name, knobs in POLICIES:
        print(row(name, dict(knobs), SCALE * alone), flush=True)


if __name__ == "__main__":
    main()
