"""PipeSwitch, OSDI'20: a trained model leaves at its next layer, and the asked one is copied while it runs.

Training runs layer by layer. On a request it stops at the next layer (its iteration is lost), and the weights
of the asked model are copied from pinned host memory in groups of layers; each group is computed as soon as
it is there (section 4.2: ``layer_groups``; the released models' groups are their ``blocks``, one where a
model tells none). A standby worker has context and structure, so that cleaning up after training overlaps
(``active-standby``, section 4.4); with ``one process`` requests wait for it. Inference is never interrupted;
later requests wait in order of arrival.

Measured, a model of the zoo trains on this host's GPU and is asked for answers (``live.switching``): training
synchronizes at each layer's hook, as the released system does.

A group costs a call and, where it is computed while others are copied, telling the worker (``sync_time``: the
paper's two overheads of small groups). Neither is published: an empty call is the latency of the host's link,
telling takes nothing. The authors' log gives both for one model, and with them the order of its variants for
two others (decision 0211).

What the memory daemon is compared with is carried out as the authors' branches do it (``memory``, figure 8,
decision 0216; ``transfers``). Not reproduced: the daemon's processes, for which threads stand where it is
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.serving.interface.sharing import (
    Action,
    Copy,
    Evict,
    Hold,
    HostCosts,
    Kill,
    Launch,
    SharedDevice,
    SharedModel,
    Sharer,
    SharingPolicy,
    SharingView,
)
from experiments.serving.planning.streams import Streams
from experiments.serving.policies.pipeswitch.layer_groups import (
    Ends,
    block_ends,
    optimal_groups,
    pruned_groups,
)
from experiments.serving.policies.pipeswitch.transfers import (
    ALLOCATED,
    HANDLES,
    MANAGED,
    PAGEABLE,
    SHARED,
    Transfers,
)

VARIANTS = ("groups", "pruned search", "blocks", "per layer", "grouped", "per layer, no pipeline", "ready")
#: Variants whose worker computes while copies go on, and is told of each group.
PIPELINED = ("groups", "pruned search", "blocks", "per layer")


@dataclass(frozen=True)
class PipeSwitch(SharingPolicy):
    """Copies a model in groups of layers while the first ones run; training stops at its next layer."""

    name: ClassVar[str] = "pipeswitch"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("requests",),
        "measured": ("model",),
    }

    transmission: str = knob("groups", "how the weights of the asked model get there", choices=VARIANTS)
    workers: str = knob(
        "active-standby", "who runs the asked model", choices=("active-standby", "one process")
    )
    call_time: float | None = knob(
        None, "of each transfer call; empty: the link's latency", low=0.0, high=1.0, unit="s"
    )
    sync_time: float = knob(
        0.0,
        "of telling a worker in the midst of a pass that a group is there; the next copy waits for it",
        low=0.0,
        high=1.0,
        unit="s",
    )
    memory: str = knob(
        SHARED, "whose memory the weights are in", choices=(SHARED, PAGEABLE, ALLOCATED, HANDLES, MANAGED)
    )
    pageable_share: float = knob(0.5, "of the link's bandwidth that pageable memory gets", low=0.01, high=1.0)
    allocation_time: float = knob(
        0.0, "of allocating a layer's tensors and pointing the layer at them", low=0.0, high=1.0, unit="s"
    )
    handle_time: float = knob(
        0.0, "of handing a group to a worker as a handle of its memory", low=0.0, high=1.0, unit="s"
    )
    clean_time: float = knob(
        0.0, "cleaning up after a stopped model, which one process waits for", low=0.0, high=60.0, unit="s"
    )

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        if self.memory == MANAGED:
            return Streams(device, models, device.bandwidth)
        call = device.call_time if self.call_time is None else self.call_time
        call += self.sync_time if self.transmission in PIPELINED else 0.0
        ends = [self._ends(model, call, device.bandwidth) for model in models]
        wait = self.clean_time if self.workers == "one process" else 0.0
        return _Switching(device, models, ends, self._transfers(device, call), wait, self.transmission)

    def _transfers(self, device: SharedDevice, call: float) -> Transfers:
        return Transfers(
            self.memory, call, device.bandwidth, self.pageable_share, self.allocation_time, self.handle_time
        )

    def on_host(self, costs: HostCosts) -> PipeSwitch:
        if self.memory != SHARED:
            raise BadInput(f"memory {self.memory!r}", "spec.knobs.memory", f"{SHARED!r} where it is measured")
        return self if self.clean_time else replace(self, clean_time=costs.clean)

    def starts_resident(self, model: SharedModel) -> bool:
        return self.transmission == "ready" or not model.is_real_time

    def _ends(self, model: SharedModel, call: float, bandwidth: float) -> Ends:
        copy = [layer.bytes / bandwidth for layer in model.operators]
        compute = [layer.seconds for layer in model.operators]
        match self.transmission:
            case "groups":
                return optimal_groups(copy, compute, call)
            case "pruned search":
                return pruned_groups(copy, compute, call)
            case "blocks":
                return block_ends([layer.part for layer in model.operators])
            case "per layer" | "per layer, no pipeline":
                return tuple(range(1, len(copy) + 1))
        return (len(copy),)


@dataclass
class _Switching:
    device: SharedDevice
    models: Sequence[SharedModel]
    ends: Sequence[Ends]
    transfers: Transfers
    wait: float
    transmission: str
    active: int | None = None
    resting: list[int] = field(init=False)
    pointed: list[int] = field(init=False)
    """Layers of each model that its worker knows where to find."""

    def __post_init__(self) -> None:
        ready = self.transmission == "ready"
        self.pointed = [
            len(model.operators) if ready or not model.is_real_time else 0 for model in self.models
        ]
        self.resting = [place for place, model in enumerate(self.models) if not model.is_real_time]
        self.active = self.resting[0] if self.resting else None

    def act(self, view: SharingView) -> Sequence[Action]:
        if view.running:
            return ()
        wanted = view.waiting[0] if view.waiting else next(iter(self.resting), None)
        if wanted is None:
            return ()
        if wanted != self.active and (switch := self._switch(wanted)):
            return switch
        return self._run(wanted, view) or self._fetch(wanted, view)

    def _switch(self, wanted: int) -> Sequence[Action]:
        """What ran is stopped between two layers, and its region of memory is given to ``wanted``."""
        stopped, self.active = self.active, wanted
        if stopped is None:
            return self._hold()
        if self.transmission == "ready":
            return (Kill(stopped, 0), *self._hold())
        self.pointed[stopped] = 0
        return (Kill(stopped, 0), Evict(stopped), *self._hold())

    def _hold(self) -> Sequence[Action]:
        return (Hold(self.wait),) if self.wait else ()

    def _run(self, model: int, view: SharingView) -> Sequence[Action]:
        """The next group that is there; training goes layer by layer, so that it can be stopped."""
        first, layers = view.position[model], self.models[model].operators
        if self.models[model].is_real_time:
            last = next(end for end in self.ends[model] if end > first)
            needed = len(layers) if self.transmission.endswith("no pipeline") else last
        else:
            last = needed = first + 1
        if view.resident[model] < needed:
            return ()
        seconds = sum(layer.seconds for layer in layers[first:last]) + self._point(model, last)
        return (Launch(model, first, last, self.device.units, seconds),)

    def _point(self, model: int, last: int) -> float:
        """What the worker does for the layers before ``last`` that came since the switch to it."""
        known = self.pointed[model]
        self.pointed[model] = max(known, last)
        groups = sum(known < end <= last for end in self.ends[model])
        return self.transfers.worker_time(self.pointed[model] - known, groups)

    def _fetch(self, model: int, view: SharingView) -> Sequence[Action]:
        """All groups that are not on their way, one call each."""
        copies, begin = [], view.copied[model]
        for end in self.ends[model]:
            if end > begin:
                group = self.models[model].operators[begin:end]
                copies.append(Copy(model, end, self.transfers.copy_time(group)))
                begin = end
        return copies
