"""How devices' kernel rates were found: least squares over the published steps that their sheets name.

``suite parallel-published`` marks these rows (``fitted``), three of a device at most. The rates of a device
are fitted to the relative errors of its rows, from a plain start; then every other row of the device is
predicted with what was found, next to the sheet's own rates. Steps are simulated.

    python benchmarks/kernel_rates.py [--device a100-80g]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from scipy.optimize import least_squares

from experiments.commands.output import table
from experiments.core import registry
from experiments.core.precision import default_precision
from experiments.core.spec import RunSpec
from experiments.core.suites import Suite, load_suite
from experiments.hardware import Hardware, NodeGroup, resolve
from experiments.parallel.interface import ParallelPolicy, model_estimate
from experiments.parallel.simulator import evaluate, simulate
from experiments.sources import layers_of

#: For each device the rates that are fitted, with where the search begins and its bounds.
RATES: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "a100-80g": {
        "product_efficiency": (0.8, 0.4, 0.98),
        "stream_efficiency": (0.7, 0.3, 1.0),
        "collective_efficiency": (0.5, 0.15, 1.0),
    },
    "h100-80g": {
        "product_efficiency": (0.65, 0.4, 0.95),
        "fill": (200.0, 8.0, 600.0),
        "collective_efficiency": (0.5, 0.15, 1.0),
    },
    "h100-96g": {
        "product_efficiency": (0.6, 0.4, 0.95),
        "attention_efficiency": (0.3, 0.1, 0.6),
        "collective_efficiency": (0.5, 0.15, 1.0),
    },
}
#: Bytes of a device where only times are looked at.
ROOMY = 10**13


@dataclass(frozen=True)
class Row:
    """One published step: what to plan, and its samples a second."""

    title: str
    fitted: bool
    spec: RunSpec
    published: float
    hardware: Hardware

    @property
    def device(self) -> str:
        return self.hardware.device.name

    def error(self, rates: Mapping[str, float]) -> float:
        """Of the throughput, predicted with ``rates`` in place of the sheet's."""
        cluster, options = self._cluster(rates), self.spec.workload.options
        policy = cast(ParallelPolicy, registry.create("parallel", self.spec.policy, self.spec.knobs))
        model, _ = layers_of(self.spec.workload, cluster.device, granularity=policy.layers)
        dtype = str(model.facts["dtype"])
        precision = options.precision or default_precision(dtype, policy.fp32_gradients)
        estimate = model_estimate(model, cluster, evaluate, options.dtype, precision=precision)
        batch = options.batch or model.batch
        seconds = simulate(policy.place(model, cluster, batch, estimate), estimate).step_time
        return batch / seconds / self.published - 1

    def _cluster(self, rates: Mapping[str, float]) -> Hardware:
        device = self.hardware.device
        other = replace(device, memory_bytes=ROOMY, kernels=replace(device.kernels, **rates))
        groups = tuple(NodeGroup(g.count, replace(g.node, device=other)) for g in self.hardware.groups)
        return replace(self.hardware, groups=groups)


def rows_of(suite: Suite) -> list[Row]:
    """Every row of ``suite`` that has a verdict."""
    return [
        Row(title, title in suite.fitted, spec, suite.published[title], resolve(spec.hardware))
        for title, spec in suite.specs()
        if title not in suite.reservations
    ]


def fit(rows: Sequence[Row], device: str) -> dict[str, float]:
    names = list(RATES[device])
    start, low, high = zip(*RATES[device].values(), strict=True)

    def errors(values: np.ndarray) -> list[float]:
        rates = dict(zip(names, values.tolist(), strict=True))
        return [float(np.log1p(row.error(rates))) for row in rows]

    result = least_squares(errors, start, bounds=(low, high), diff_step=1e-2, xtol=1e-3)
    return dict(zip(names, result.x.tolist(), strict=True))


def show(device: str, rows: Sequence[Row]) -> None:
    """Print the rates of the sheet and of the fit, and the errors of the device's rows by both."""
    kernels = rows[0].hardware.device.kernels
    sheet = {name: float(getattr(kernels, name)) for name in RATES[device]}
    ours = fit([row for row in rows if row.fitted], device)
    print(f"\n{device}")
    print(table(("rate", "sheet", "this fit"), [(n, f"{sheet[n]:.3f}", f"{ours[n]:.3f}") for n in sheet]))
    errors = {row.title: [row.error(rates) for rates in (sheet, ours)] for row in rows}
    lines = [
        (row.title, "fitted" if row.fitted else "predicted", *(f"{e:+.1%}" for e in errors[row.title]))
        for row in rows
    ]
    print(table(("step", "role", "by the sheet", "by this fit"), lines))
    for which, name in enumerate(("sheet", "fit")):
        sizes = [abs(errors[row.title][which]) for row in rows if not row.fitted]
        print(f"by the {name}: {len(sizes)} predicted rows, median {statistics.median(sizes):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=list(RATES), help="one device instead of all")
    asked = parser.parse_args().device
    every = rows_of(load_suite("parallel-published"))
    for device in [asked] if asked else RATES:
        show(device, [row for row in every if row.device == device])


if __name__ == "__main__":
    main()
