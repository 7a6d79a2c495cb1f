"""Splitwise, ISCA'24 (Patel et al.): machines for prompts, machines for answers, and a pool that does both.

Every machine has the whole model. A request is given both of its machines as it arrives, each the one with
the shortest queue in its pool (section 4.1, join the shortest queue). A pool whose shortest queue is longer
than a threshold borrows a machine of the other one; it computes prompts and answers in mixed batches, and
goes back when its foreign work is done. The KV of prompts of ``overlap_from`` tokens and more is copied layer
by layer while the prompt is computed, that of shorter ones behind it (section 4.2; 512 on H100).

``prompt_machines`` 0: every division is tried on a sample of the load, and the one with the most requests
within their objective taken, then that with the lowest mean latency (section 4.4 searches by cost, power and
throughput). Thresholds of borrowing are knobs: the paper gives none. Left out: machines of different kinds,
power caps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.core.units import human
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
from experiments.serving.planning.prompts_first import admit_prompts, decode_all


@dataclass(frozen=True)
class Splitwise(PhasePolicy):
    """Machines for prompts and for answers, which help each other out with mixed batches."""

    name: ClassVar[str] = "splitwise"

    machine_devices: int = knob(
        0, "devices of a machine; 0: a node's, or half of a lone node's", low=0, high=64
    )
    prompt_machines: int = knob(0, "machines for prompts; 0: searched", low=0, high=1024)
    prefill_tokens: int = knob(2048, "tokens in a batch of prompts", low=1, high=10**6, unit="tokens")
    watermark: float = knob(0.01, "share of blocks left free when a prompt is admitted", low=0.0, high=0.5)
    prompt_queue: int = knob(
        8192, "waiting tokens from which a machine for answers helps", low=1, high=10**9, unit="tokens"
    )
    full: float = knob(
        0.9, "share of KV memory in use from which a machine for prompts helps", low=0.0, high=1.0
    )
    overlap_from: int = knob(
        512, "shortest prompt whose KV is copied while it is computed", low=1, high=10**9, unit="tokens"
    )

    @property
    def arranges_by_rate(self) -> bool:
        return not self.prompt_machines

    def arrange(self, site: Site) -> Arrangement:
        shape = InstanceShape(1, self._tensor(site))
        machines = site.nodes * (site.devices_per_node // shape.tensor)
        if machines < 2 or self.prompt_machines >= machines:
            what = f"{human(machines, 'machines')} of {human(shape.tensor, 'devices')}"
            raise BadInput(what, "spec.hardware", "a machine for prompts and one for answers at least")
        if shape not in site.shapes:
            known = ", ".join(str(tensor) for stages, tensor in site.shapes if stages == 1)
            raise BadInput(
                f"{shape.tensor} devices cannot hold or divide the model", "machine_devices", known or "more"
            )
        counts = [self.prompt_machines] if self.prompt_machines else range(1, machines)
        options = {count: _machines(site, shape, machines, count) for count in counts}
        if len(options) == 1:
            return Arrangement(next(iter(options.values())))
        tried = {count: site.try_out(found, site.rate) for count, found in options.items()}
        site.note(len(tried))
        best = min(tried, key=lambda count: (-tried[count].attainment, tried[count].latency, count))
        rows = {str(count): trial._asdict() for count, trial in tried.items()}
        return Arrangement(options[best], {"prompt_machines": rows})

    def _tensor(self, site: Site) -> int:
        if self.machine_devices:
            return min(self.machine_devices, site.devices_per_node)
        return site.devices_per_node if site.nodes > 1 else max(1, site.devices_per_node // 2)

    def begin(self, instances: Sequence[Instance]) -> PhaseDispatcher:
        return Pools(self, instances)


def _machines(site: Site, shape: InstanceShape, machines: int, prompts: int) -> tuple[Instance, ...]:
    wanted = [(PREFILL, shape)] * prompts + [(DECODE, shape)] * (machines - prompts)
    placed = place_instances(wanted, site.nodes, site.devices_per_node)
    assert placed is not None, "machines of one width fill the nodes"
    return placed


class Pools:
    """Which machines are in which pool; those ``lent`` do the work of both."""

    def __init__(self, policy: Splitwise, instances: Sequence[Instance]) -> None:
        self.policy = policy
        places = range(len(instances))
        self.prompts = [place for place in places if instances[place].role == PREFILL]
        self.answers = [place for place in places if instances[place].role == DECODE]
        self.lent: set[int] = set()
        #: By machine the requests of which it does what is the other pool's work.
        self.foreign: dict[int, set[int]] = {place: set() for place in places}

    def on_arrival(self, request: int, view: PhaseView) -> int:
        self._take_back(view)
        goal = view.goal[request] = self._for_answer(view)
        source = self._for_prompt(view)
        for place, own in ((source, self.prompts), (goal, self.answers)):
            if place not in own:
                self.foreign[place].add(request)
        return source

    def on_prefilled(self, request: int, view: PhaseView) -> int:
        return view.goal[request]

    def _take_back(self, view: PhaseView) -> None:
        """A machine whose foreign work is done is lent no more."""
        for place in sorted(self.lent):
            one = view.instances[place]
            self.foreign[place] = {request for request in self.foreign[place] if _is_due(request, one)}
            if not self.foreign[place]:
                self.lent.discard(place)

    def _for_prompt(self, view: PhaseView) -> int:
        def has_room(one: InstanceView) -> bool:
            return one.due_tokens <= self.policy.prompt_queue

        return self._shortest(view, self.prompts, self.answers, has_room, lambda one: one.due_tokens)

    def _for_answer(self, view: PhaseView) -> int:
        def has_room(one: InstanceView) -> bool:
            return _use(one) <= self.policy.full

        return self._shortest(view, self.answers, self.prompts, has_room, lambda one: one.kv_load)

    def _shortest(
        self,
        view: PhaseView,
        own: Sequence[int],
        others: Sequence[int],
        has_room: Callable[[InstanceView], bool],
        queue: Callable[[InstanceView], int],
    ) -> int:
        """The shortest queue of its own pool, else of the mixed one, else of the other, which keeps one.

        Where none has room it is the shortest of its own kind.
        """

        def length(place: int) -> tuple[int, int]:
            return queue(view.instances[place]), place

        whole = [place for place in own if place not in self.lent]
        last = [place for place in others if place not in self.lent]
        for places in (whole, sorted(self.lent), last if len(last) > 1 else []):
            if found := [place for place in places if has_room(view.instances[place])]:
                best = min(found, key=length)
                self.lent |= {best} & set(others)
                return best
        return min(own, key=length)

    def fill(self, view: InstanceView) -> bool:
        """Every answer, and prompts besides: a machine has both where it was lent."""
        decode_all(view)
        if not view.preempted:
            reserve = int(self.policy.watermark * view.pool.total)
            admit_prompts(view, self.policy.prefill_tokens, self.policy.max_batch, reserve)
        for requests in self.foreign.values() if view.rejected else ():
            requests.difference_update(request for request, _ in view.rejected)
        return not (view.admitted or view.preempted or view.rejected)

    def overlaps(self, prompt: int) -> bool:
        return prompt >= self.policy.overlap_from


def _is_due(request: int, view: InstanceView) -> bool:
    """Whether a prompt, or the answer at a machine for prompts, is still to be computed."""
    if view.known[request] == view.prompt[request]:
        return True
    is_here = request in view.held or request in view.incoming or request in view.waiting
    return is_here and view.instance.role == PREFILL


def _use(view: InstanceView) -> float:
    """The share of its KV memory that is in use or has to come."""
    return view.kv_load / (view.pool.total * view.pool.size)
