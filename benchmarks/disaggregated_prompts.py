"""What decides how many times vLLM's requests DistServe serves on a device: lengths, or what passes take.

    python -m benchmarks.disaggregated_prompts

OPT-13B on A100-80G, 90 % of requests within 0.25 s to the first token and 0.1 s a token (OSDI'24, table 1
and section 6.2: at least 2.0 times; DistServe with two devices for prompts and one for answers). Passes take
what the sheet's roofline says, or what the authors fitted to measurements of either engine (ms: constant, per
token and per token squared of prompts; constant, per token read and per answer of decodes, by fewer than 95
answers and by more; LLMServe/DistServe at 82831f1, simdistserve/estimators/profile_data), with the KV memory
that they found. Lengths are geometric within 2,048 tokens, with the means of vLLM's study (SOSP'23, figure
11) and of DistServe's own (figure 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from experiments.core import registry
from experiments.core.rate_search import find_highest
from experiments.hardware import resolve
from experiments.models.served import served_model
from experiments.serving.experiment.prices import price_of
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import DECODE, PREFILL, InstanceShape, PhasePolicy, place_instances
from experiments.serving.interface.step_load import StepLoad, StepPrice
from experiments.serving.simulator import LatencyObjective, figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.serving.simulator.phases import Fabric, InstanceEngine, simulate_phases
from experiments.workloads.requests import RequestTrace

CONTEXT, COUNT, WANTED = 2048, 2000, 0.9
OBJECTIVE = LatencyObjective(0.25, 0.1)
MEANS = {"vLLM's study": (161.31, 337.99), "DistServe's study": (755.5, 200.3)}
#: KV tokens on one device and on two.
SLOTS = {1: 66144, 2: 163008}
MANY = 95


@dataclass(frozen=True)
class FittedPrice:
    """Milliseconds of prompts, and of decodes of few and of many answers."""

    prompts: tuple[float, float, float]
    few: tuple[float, float, float]
    many: tuple[float, float, float]

    def seconds(self, load: StepLoad, steps: int = 1) -> npt.NDArray[np.float64]:
        found = np.zeros(steps)
        if load.prefill:
            fixed, each, squared = self.prompts
            found += fixed + each * load.prefill + squared * sum(tokens**2 for tokens, _ in load.prompts)
        if load.decodes:
            fixed, read, each = self.few if load.decodes < MANY else self.many
            context = load.decode_context + load.decodes * np.arange(steps)
            found += fixed + read * context + each * load.decodes
        return found / 1e3

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return 0

    def wake_seconds(self, idle: float) -> float:
        return 0.0


VLLM = FittedPrice(
    (22.052, 0.140509, 8.07658e-6), (23.475, 5.92934e-4, 0.0607269), (20.206, 4.90771e-4, 0.120003)
)
OWN = {
    1: FittedPrice(
        (18.103, 0.101912, 7.12226e-6), (19.935, 6.26936e-4, 0.0385070), (7.166, 5.79800e-4, 0.158311)
    ),
    2: FittedPrice(
        (14.743, 0.0685772, 2.44957e-6), (13.295, 3.41092e-4, 0.0629639), (10.639, 3.11834e-4, 0.0856291)
    ),
}


def lengths(mean: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return geometric lengths below the context whose mean is ``mean``."""
    tokens = np.arange(1, CONTEXT)

    def shares(decay: float) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = np.exp(-decay * tokens)
        found /= found.sum()
        return found

    decay = brentq(lambda value: float(shares(value) @ tokens) - mean, -0.01, 0.5)
    found: npt.NDArray[np.int64] = rng.choice(tokens, size=2 * COUNT, p=shares(decay))
    return found


def draw(means: tuple[float, float]) -> RequestTrace:
    """Return requests at one a second; those over the context are left out, as in the study."""
    rng = np.random.default_rng(0)
    prompt, output = (lengths(mean, rng) for mean in means)
    kept = np.flatnonzero(prompt + output < CONTEXT)[:COUNT]
    arrival = np.cumsum(rng.exponential(1.0, COUNT))
    return RequestTrace("drawn", arrival - arrival[0], prompt[kept], output[kept], ("",) * COUNT)


def highest(trace: RequestTrace, serve: Callable[[RequestTrace], dict[str, float]]) -> float:
    """Return the requests a second of which the wanted share is in time."""
    return find_highest(
        lambda rate: serve(replace(trace, arrival=trace.arrival / rate))["slo_attainment"] >= WANTED
    )


def together(trace: RequestTrace, name: str, price: StepPrice) -> float:
    """On one device, all in one engine."""
    knobs = {"max_batch": 1024, **({"max_tokens": 16384} if name == "vllm_paged" else {})}
    policy = registry.create("serving", name, knobs)
    assert isinstance(policy, PagedPolicy)
    blocks = SLOTS[1] // policy.block_size
    return highest(
        trace, lambda one: figures(simulate_paged(one, policy, blocks, price, CONTEXT), one, OBJECTIVE)
    )


def apart(trace: RequestTrace, prices: dict[int, StepPrice]) -> float:
    """On three devices: two for prompts, one for answers."""
    policy = registry.create("serving", "distserve", {"prefill_tokens": 8192, "max_batch": 1024})
    assert isinstance(policy, PhasePolicy)
    wanted = [(PREFILL, InstanceShape(1, 2)), (DECODE, InstanceShape(1, 1))]
    instances = place_instances(wanted, 1, 3)
    assert instances is not None
    engines = [InstanceEngine(prices[n], SLOTS[n] // policy.block_size) for n in (2, 1)]
    model, node = served_model("opt-13b"), resolve("a100-80g").node
    fabric = Fabric(node.link, node.link, 3, model.kv_bytes_per_token(2), model.layers)

    def serve(one: RequestTrace) -> dict[str, float]:
        begun = policy.begin(instances)
        plan = simulate_phases(one, instances, begun, engines, fabric, max_batch=1024, context=CONTEXT)
        return figures(plan.serving, one, OBJECTIVE)

    return highest(trace, serve)


def main() -> None:
    """Print requests a second on a device for each pair of lengths and times."""
    cluster = resolve({"cluster": {"nodes": 1, "devices_per_node": 2, "device": "a100-80g"}})
    model = served_model("opt-13b")
    sheet = {n: price_of(None, model, cluster, "float16", InstanceShape(1, n))[0] for n in (1, 2)}
    times: dict[str, tuple[StepPrice, dict[int, StepPrice]]] = {
        "the sheet's roofline": (sheet[1], sheet),
        "the authors' fit, each its own": (VLLM, dict(OWN)),
        "DistServe's fit for both": (OWN[1], dict(OWN)),
    }
    for study, means in MEANS.items():
        trace = draw(means)
        for told, (price, prices) in times.items():
            rates = [together(trace, name, price) for name in ("vllm_paged", "sarathi_chunked")]
            ours = apart(trace, prices) / 3
            row = f"vLLM {rates[0]:.3g}, prompts in parts {rates[1]:.3g}, DistServe {ours:.3g} a device"
            times_of = " and ".join(f"{ours / rate:.2f}" if rate else "any number of" for rate in rates)
            print(f"{study}, {told}: {row}, {times_of} times", flush=True)


if __name__ == "__main__":
    main()
