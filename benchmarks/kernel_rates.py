"""How the A100's kernel rates were found: least squares over the five published step times that its sheet
names.

Three rates (inside a product's tile, bandwidth of element-wise kernels, of collectives inside a node) are
fitted, from a plain start, to the relative errors of the rows; then every other row of the same papers is
predicted with what was found, next to the sheet's own rates. Times are closed forms
(``policies.megatron.analytic``).

    python benchmarks/kernel_rates.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from scipy.optimize import least_squares

from experiments.commands.output import table
from experiments.core import registry
from experiments.core.paper import evaluate as evaluated
from experiments.core.spec import RunSpec, load_spec
from experiments.hardware import Hardware, NodeGroup, resolve
from experiments.parallel.interface import model_estimate
from experiments.parallel.policies.megatron import Megatron
from experiments.parallel.policies.megatron.analytic import Analytic, Columns
from experiments.parallel.simulator import evaluate
from experiments.sources import layers_of
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import OPERATORS

RATES = ("product_efficiency", "stream_efficiency", "collective_efficiency")
START = (0.8, 0.7, 0.7)
#: How a claim says that it is one of the fitted rows.
FITTED = "were fitted on"


@dataclass(frozen=True)
class Row:
    """One published step: what to plan, and its seconds."""

    name: str
    fitted: bool
    spec: RunSpec
    published: float
    hardware: Hardware
    model: LayerGraph

    def seconds(self, rates: Mapping[str, float]) -> float:
        """Predicted with ``rates`` in place of the sheet's."""
        node = self.hardware.node
        kernels = replace(node.device.kernels, **rates)
        groups = tuple(
            NodeGroup(g.count, replace(g.node, device=replace(g.node.device, kernels=kernels)))
            for g in self.hardware.groups
        )
        cluster = replace(self.hardware, groups=groups)
        batch = self.spec.workload.options.batch or 1
        policy = registry.create("parallel", "megatron", self.spec.knobs)
        assert isinstance(policy, Megatron)
        plans = Columns.of([policy.degrees()], cluster.device_count)
        found = Analytic(model_estimate(self.model, cluster, evaluate), batch).figures(plans)
        return float(found.step_time[0])


def rows() -> list[Row]:
    """Every claim of the Megatron sheet that is one run on A100s."""
    found = []
    for claim in registry.sheet(Megatron).claims:
        if set(claim.runs) != {"ours"} or claim.unit not in ("s", "FLOP/s"):
            continue
        spec = load_spec(dict(claim.runs["ours"]))
        if spec.policy != "megatron":
            continue
        hardware = resolve(spec.hardware)
        at_one_second = evaluated(claim.figure, {"ours": {"step_time": 1.0}})
        published = claim.value if claim.unit == "s" else at_one_second / claim.value
        model, _ = layers_of(spec.workload, hardware.device, granularity=OPERATORS)
        found.append(Row(claim.id, FITTED in claim.text, spec, published, hardware, model))
    return found


def fit(chosen: Sequence[Row]) -> dict[str, float]:
    def errors(values: np.ndarray) -> list[float]:
        rates = dict(zip(RATES, values.tolist(), strict=True))
        return [row.seconds(rates) / row.published - 1 for row in chosen]

    result = least_squares(errors, START, bounds=(0.05, 1.0), diff_step=1e-3, xtol=1e-6)
    return dict(zip(RATES, result.x.tolist(), strict=True))


def main() -> None:
    every = rows()
    ours = fit([row for row in every if row.fitted])
    kernels = every[0].hardware.device.kernels
    sheet = {name: float(getattr(kernels, name)) for name in RATES}
    print(table(("rate", "sheet", "this fit"), [(n, f"{sheet[n]:.3f}", f"{ours[n]:.3f}") for n in RATES]))
    lines = []
    for row in every:
        by = [row.seconds(rates) / row.published - 1 for rates in (sheet, ours)]
        role = "fitted" if row.fitted else "predicted"
        lines.append((row.name, role, f"{row.published:.2f} s", *(f"{error:+.1%}" for error in by)))
    print(table(("step", "role", "published", "by the sheet", "by this fit"), lines))


if __name__ == "__main__":
    main()
