"""DistServe, OSDI'24 (Zhong et al.): instances for prompts and others for answers.

Each kind has its own parallelism, chosen for the most requests within their objectives on every device.

``search`` has the placement (sections 4.1 and 4.2, algorithms 1 and 2). Online (section 4.3) a prompt goes to
the shortest queue in tokens, an answer to the least loaded instance. Prompts run in the order of arrival, in
batches of up to ``prefill_tokens``, from which on a device is bound by arithmetic; longer ones run alone. The
answering side pulls KV as it has memory, so that instances for prompts are the buffer.

A cluster is given, not a load: instances fill it so that the slower phase carries most, where the paper
deploys as many as a load needs. An answer that outgrows its instance's memory is computed anew there. Left
out: planning anew as the load changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.processes import search_processes
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    Arrangement,
    Instance,
    InstanceShape,
    InstanceView,
    PhaseDispatcher,
    PhasePolicy,
    PhaseView,
    Site,
    place_instances,
)
from experiments.serving.planning.prompts_first import PromptsFirst
from experiments.serving.policies.distserve.search import search


@dataclass(frozen=True)
class DistServe(PhasePolicy):
    """Prompts and answers on instances of their own, shaped for the most requests within their objectives."""

    name: ClassVar[str] = "distserve"

    links: str = knob(
        "auto",
        "fast: each phase is shaped alone; slow: stages with the same layers share a node; auto: the better",
        choices=("auto", "fast", "slow"),
    )
    prefill_tokens: int = knob(2048, "tokens in a batch of prompts", low=1, high=10**6, unit="tokens")
    watermark: float = knob(0.01, "share of blocks left free when a prompt is admitted", low=0.0, high=0.5)
    prefill_instances: int = knob(0, "instances for prompts; 0: all is searched", low=0, high=1024)
    prefill_pipeline: int = knob(1, "stages of an instance for prompts", low=1, high=1024)
    prefill_tensor: int = knob(1, "devices of a stage for prompts", low=1, high=1024)
    decode_instances: int = knob(1, "instances for answers", low=1, high=1024)
    decode_pipeline: int = knob(1, "stages of an instance for answers", low=1, high=1024)
    decode_tensor: int = knob(1, "devices of a stage for answers", low=1, high=1024)
    processes: int = search_processes()

    def arrange(self, site: Site) -> Arrangement:
        if self.prefill_instances:
            return Arrangement(self._as_told(site))
        return search(site, self.links, self.wanted_attainment, self.processes)

    def _as_told(self, site: Site) -> tuple[Instance, ...]:
        prompts = (PREFILL, InstanceShape(self.prefill_pipeline, self.prefill_tensor))
        answers = (DECODE, InstanceShape(self.decode_pipeline, self.decode_tensor))
        for knob_name, (_, shape) in (("prefill_tensor", prompts), ("decode_tensor", answers)):
            if shape not in site.shapes:
                what = f"{shape.pipeline} stages of {shape.tensor} devices cannot hold or divide the model"
                raise BadInput(what, knob_name, ", ".join(f"{p} x {t}" for p, t in site.shapes))
        wanted = [prompts] * self.prefill_instances + [answers] * self.decode_instances
        placed = place_instances(wanted, site.nodes, site.devices_per_node)
        if placed is None:
            need = sum(shape.devices for _, shape in wanted)
            raise BadInput(f"{need} devices are needed", "prefill_instances", f"at most {site.devices}")
        return placed

    def begin(self, instances: Sequence[Instance]) -> PhaseDispatcher:
        return LeastLoaded(instances, PromptsFirst(self.max_batch, self.prefill_tokens, self.watermark))


class LeastLoaded:
    """Prompts to the shortest queue in tokens, answers to the instance with the fewest."""

    def __init__(self, instances: Sequence[Instance], steps: PromptsFirst) -> None:
        self.steps = steps
        places = range(len(instances))
        self.prompts = [place for place in places if instances[place].role == PREFILL]
        self.answers = [place for place in places if instances[place].role == DECODE]

    def on_arrival(self, request: int, view: PhaseView) -> int:
        return min(self.prompts, key=lambda place: (view.instances[place].due_tokens, place))

    def on_prefilled(self, request: int, view: PhaseView) -> int:
        return min(self.answers, key=lambda place: (view.instances[place].load, place))

    def fill(self, view: InstanceView) -> bool:
        return self.steps.fill(view, view.fair_share if view.instance.shape.pipeline > 1 else None)

    def overlaps(self, prompt: int) -> bool:
        return False
