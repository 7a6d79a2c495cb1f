"""ParallelPlan: who computes which layers when, and what is replicated, sharded or synchronized. Plain data.

A *worker* is a group of devices that execute the same slots together (one device, or a tensor-parallel
group). A *stage* is a run of consecutive layers, hosted by one or more workers (its replicas). Micro-batches
are numbered over the whole step, so which replica handles one follows from whose slots name it. This spells
plain data parallelism (one stage, many workers), pipelines with any number of replicas per stage, several
stages on one worker (interleaved) and two replicas in opposite directions (Chimera) without a case for each.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from experiments.parallel.interface.engines import PLAIN
from experiments.parallel.interface.rewritten import RewrittenLayer
from experiments.parallel.interface.training import Training

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"
SLOT_KINDS = (FORWARD, BACKWARD, WEIGHT)

COLLECTIVE_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast")
#: How replicas sum gradients; ``auto`` is the fastest for the message on the cluster.
ALGORITHMS = (
    "ring",
    "tree",
    "doubling",
    "halving_doubling",
    "hierarchical",
    "double_tree",
    "hierarchical_tree",
    "auto",
)
#: What the bytes of a collective count for.
PER_SAMPLE, PER_PASS, PER_STEP = "sample", "pass", "step"
PERIODS = (PER_SAMPLE, PER_PASS, PER_STEP)
#: The axis of a sharding that gives each device experts of its own.
EXPERT = "expert"
#: The axis of a mesh that counts the replicas of a worker.
JOINED = "joined"


class Slot(NamedTuple):
    """One pass of one micro-batch through one stage.

    ``kind``: F forward, B backward, W the weight gradient apart from B.

    In a plan with W slots a B slot computes the input gradient only; without them B does both.
    """

    kind: str
    micro_batch: int
    stage: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}.{self.stage}"

    @classmethod
    def parse(cls, text: str) -> Slot:
        micro_batch, stage = text[1:].split(".")
        return cls(text[0], int(micro_batch), int(stage))


class Slice(NamedTuple):
    """A micro-batch that is part of sequences: ``samples`` and the tokens of each.

    ``tokens`` of each sample, after ``context`` others.

    Micro-batches of unequal numbers of whole samples are ``Slice(samples, 0, 1)``, whatever a sample is.
    """

    samples: int
    context: int
    tokens: int


@dataclass(frozen=True)
class Stage:
    """Layers ``begin`` to ``end`` (exclusive) and the workers that host a replica of them.

    ``weight_versions`` are the copies of the weights kept at once: 1 unless the pipeline is asynchronous.
    """

    begin: int
    end: int
    workers: tuple[int, ...]
    weight_versions: int = 1


@dataclass(frozen=True)
class Worker:
    """Devices and the slots that they execute together, in this order.

    Devices are numbered over the cluster, node by node.

    ``slow``: how many times longer than the device would take its iterations last, in turn over and over:
    ``(2.0,)`` is a slow worker, ``(1.0, 1.0, 5.0)`` straggles every third time. With parameter servers only.
    """

    devices: tuple[int, ...]
    slots: tuple[Slot, ...]
    slow: tuple[float, ...] = ()


@dataclass(frozen=True)
class Collective:
    """A collective among a worker's devices that a layer needs.

    - ``bytes``: those of the whole vector (what a rank holds before an all-reduce or after an all-gather;
      what it sends in a permute or an all-to-all), for each ``per``.
    - ``per``: a *sample* of the micro-batch, a *pass* (a slot), or a *step*: once, when the layer's last
      gradient of the step is there, overlapped with the remaining backward passes.
    - ``ranks``, ``stride``: groups of ``ranks`` devices ``stride`` apart in the worker's order (row-major
      over its own mesh), which all communicate at once; 0 ranks: all devices of the worker.
    - ``overlap``: it is concurrent with the computation of its own layer and holds up only what comes after
      both.
    - ``parts``: the layer's computation is a loop of so many equal parts, and concurrently with each but the
      last runs one such collective.
    - ``slowdown``: how many times as long as its links say it lasts (a ring in one direction that uses half
      of them).
    """

    kind: str
    bytes: float
    ranks: int = 0
    stride: int = 1
    per: str = "sample"
    overlap: bool = False
    parts: int = 1
    slowdown: float = 1.0

    def groups(self, devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the groups of devices that communicate, of all ``devices`` of a worker.

        With 8 of them, 2 ranks 4 apart are (0, 4), (1, 5), (2, 6), (3, 7).
        """
        ranks = self.ranks or len(devices)
        block = ranks * self.stride
        return tuple(
            tuple(devices[start + offset : start + block : self.stride])
            for start in range(0, len(devices), block)
            for offset in range(self.stride)
        )


@dataclass(frozen=True)
class Sharding:
    """How a layer is divided among a worker's devices.

    ``axis`` names what is cut (``column``, ``row``, ``heads``, ``sequence``, ``expert`` ...); compute,
    parameters and kept activations are divided by their own counts, since schemes differ in what they
    replicate. Where operators of one layer are divided differently, the counts are those of the layer as a
    whole and need not be whole numbers. Attention may run in ``steps``, one for each part of keys and values.
    ``experts`` are the parts of a mixture's experts, of which a device has one; along the axis ``expert``
    devices with the same part hold the same weights.
    """

    layer: int
    axis: str
    compute: float
    parameters: float
    activations: float
    forward: tuple[Collective, ...] = ()
    backward: tuple[Collective, ...] = ()
    steps: int = 1
    experts: float = 1


@dataclass(frozen=True)
class Synchronization:
    """How the replicas of a stage agree on their weights.

    - ``kind``: ``all_reduce``, ``parameter_server`` or ``summation``. In the last, parts of ``bucket_bytes``
      at most are summed by one of ``servers`` each and sent back.
    - ``algorithm``: of the all-reduces.
    - ``bucket_bytes``: gradients travel in buckets of at least so many (the last may be smaller).
    - ``staleness``: how many iterations a worker may be in front of the slowest: 0 is BSP, n is SSP, ``None``
      is ASP.
    - ``servers``: the devices that hold the parameters, if any, in ranges of ``bucket_bytes`` at most.
    - ``fetch_every``: iterations between a worker's fetches of parameters.
    - ``push_every``: iterations between its pushes of what it has accumulated.
    - ``fetch_ahead``: it computes while parameters are on their way.
    - ``shares``: the servers' proportions of a summation.
    - ``in_flight``: the most parts of a summation at once.
    - ``buckets``: which layers make a bucket (first to last exclusive, last layers first) where their bytes
      do not.
    - ``cycle``: seconds between the moments at which buckets that are ready may leave (0: at once).
    - ``prefetch``: ZeRO 1 and 2 gather updated weights bucket by bucket, each before the step's first forward
      pass over it and while those before it compute; else behind the update.
    - ``by_owner``: ZeRO 1 and 2 hand out updated weights behind the update, one owner of whole tensors after
      the other.
    - ``regather``: ZeRO 3 gathers the weights of what is recomputed twice in a backward pass: to recompute
      it, and for its gradient.
    - ``by_slice``: ZeRO 1 sums whole gradients, and hands out updated weights behind the update through lists
      of a slice of every tensor for each device.
    - ``tensor_by_tensor``: ZeRO 3 gathers and reduces every weight by itself, through a list of a part for
      each device, and computes nothing meanwhile.
    """

    kind: str = "all_reduce"
    algorithm: str = "ring"
    bucket_bytes: float = 25 * 2**20
    staleness: int | None = 0
    servers: tuple[int, ...] = ()
    fetch_every: int = 1
    push_every: int = 1
    fetch_ahead: bool = False
    shares: tuple[float, ...] = ()
    in_flight: int = 16
    buckets: tuple[tuple[int, int], ...] = ()
    cycle: float = 0.0
    regather: bool = False
    prefetch: bool = False
    by_owner: bool = False
    by_slice: bool = False
    tensor_by_tensor: bool = False


@dataclass(frozen=True)
class ParallelPlan:
    """How a model is trained on a cluster: stages, workers, their slots and what they exchange.

    - ``batch``: samples of a step, or of all ``steps`` of an asynchronous pipeline's plan.
    - ``micro_batches``: equal parts of the batch.
    - ``mesh``: names and sizes of the axes, for people.
    - ``zero``: the ZeRO stage (0: everything replicated).
    - ``zero_group``: the devices among which ZeRO divides states; the groups hold copies (hybrid sharding).
      0: all devices that hold the same weights.
    - ``recompute``: the layers whose activations are dropped after the forward pass and recomputed before
      their backward pass.
    - ``checkpoints``: the recomputed layers whose input is kept; each begins a run that is recomputed by
      itself. Without them every run of neighbors in ``recompute`` keeps the input of its first.
    - ``saved``: recomputed layers whose output is kept instead, so that they run once.
    - ``shardings``: layers without one are whole on every device of their workers.
    - ``steps``: more than one in an asynchronous pipeline, whose replicas reduce their gradients after every
      pass.
    - ``slices``: one for each micro-batch where these are parts of sequences; the slices of the same samples
      follow each other, and each needs those before it.
    - ``joined``: micro-batches whose forward pass through a stage is one with that of the micro-batch before
      them, on what both have together; backward passes stay apart.
    - ``slot_overhead``: seconds that a slot takes besides its layers.
    - ``overlapped``: each device begins the next step when its own part is done: nothing global is waited
      for, and the optimizer's check of all gradients is made good afterwards. Then a step takes as long as
      the device that is longest at it.
    - ``blocking``: a worker does nothing else until what it sends to another stage has arrived.
    - ``engine``: the library that carries the plan out, which holds buffers of its own (``engines``).
    - ``host_optimizer``: gradients go to the host, which has the optimizer's state and updates the weights.
    - ``rewritten``: the layers that are computed otherwise than in the model that was planned for.
    - ``training``: how weights are updated where that is the method's point (rates, versions, adaptation).
    - ``notes``: what the policy wants to be read with the plan (JSON): predicted figures, what a search
      looked at.
    """

    batch: int
    micro_batches: int
    mesh: tuple[tuple[str, int], ...]
    stages: tuple[Stage, ...]
    workers: tuple[Worker, ...]
    zero: int = 0
    recompute: tuple[int, ...] = ()
    shardings: tuple[Sharding, ...] = ()
    synchronization: Synchronization = Synchronization()
    steps: int = 1
    notes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    slices: tuple[Slice, ...] = ()
    slot_overhead: float = 0.0
    training: Training | None = None
    checkpoints: tuple[int, ...] = ()
    saved: tuple[int, ...] = ()
    overlapped: bool = False
    zero_group: int = 0
    blocking: bool = False
    joined: tuple[int, ...] = ()
    engine: str = PLAIN
    host_optimizer: bool = False
    rewritten: tuple[RewrittenLayer, ...] = ()

    @functools.cached_property
    def sequence(self) -> int:
        """Tokens of a sequence that is divided into slices."""
        return max(part.context + part.tokens for part in self.slices)

    @property
    def micro_batch_samples(self) -> int:
        return self.batch // self.micro_batches

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(device for worker in self.workers for device in worker.devices)

    @property
    def context(self) -> int:
        """Devices of a worker that share a sequence and have the same weights."""
        return dict(self.mesh).get("context", 1)

    @property
    def joined_replicas(self) -> int:
        """Replicas that are one worker because they share experts."""
        return dict(self.mesh).get(JOINED, 1)

    @functools.cached_property
    def expert_parts(self) -> int:
        """Parts of the experts of layers that are divided by experts; 0 where there is none."""
        return next((round(sharding.experts) for sharding in self.shardings if sharding.axis == EXPERT), 0)

    def holders(self, stage: Stage, experts: bool = False) -> list[tuple[int, ...]]:
        """Return the groups of devices that hold the same weights of ``stage``, or of its ``experts``.

        A group has the devices at one place of every replica, for every part of a sequence. They sum
        gradients, and ZeRO divides states among them.
        """
        replicas = [self.workers[worker].devices for worker in stage.workers]
        places = self.expert_parts if experts else len(replicas[0]) // (self.context * self.joined_replicas)
        return [tuple(d for devices in replicas for d in devices[place::places]) for place in range(places)]

    def degree(self, stage: Stage, experts: bool = False) -> int:
        """Return how many devices hold the same weights of ``stage``, or of its ``experts``."""
        if experts:
            devices = len(stage.workers) * len(self.workers[stage.workers[0]].devices)
            return devices // self.expert_parts if self.expert_parts else 1
        return len(stage.workers) * self.context * self.joined_replicas

    def is_replicated(self, stage: Stage) -> bool:
        """Whether any weights of ``stage`` are on several devices."""
        return self.degree(stage) > 1 or self.degree(stage, experts=True) > 1

    def sharing(self, stage: Stage, experts: bool = False) -> int:
        """Return among how many devices ZeRO divides the states of ``stage``, or of its ``experts``."""
        degree = self.degree(stage, experts)
        return min(self.zero_group or degree, degree)

    def sharing_groups(self, stage: Stage, experts: bool = False) -> list[tuple[int, ...]]:
        """Return the groups among which ZeRO divides states: neighbors of each group of ``holders``."""
        size = self.sharing(stage, experts)
        holders = self.holders(stage, experts)
        return [group[start : start + size] for group in holders for start in range(0, len(group), size)]

    def copy_groups(self, stage: Stage, experts: bool = False) -> list[tuple[int, ...]]:
        """Return the groups of devices that hold the same part of divided states."""
        size = self.sharing(stage, experts)
        return [group[place::size] for group in self.holders(stage, experts) for place in range(size)]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a document; slots are spelled ``F3.0``: kind, micro-batch, stage."""
        plain = asdict(replace(self, workers=()))
        plain["mesh"] = dict(self.mesh)
        plain["notes"] = dict(self.notes)
        plain["workers"] = [
            {
                "devices": list(worker.devices),
                "slots": [str(slot) for slot in worker.slots],
                "slow": list(worker.slow),
            }
            for worker in self.workers
        ]
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ParallelPlan:
        """Return the plan that ``to_json`` wrote; other keys of the document are ignored."""
        return cls(
            batch=data["batch"],
            micro_batches=data["micro_batches"],
            mesh=tuple(data["mesh"].items()),
            stages=tuple(Stage(**{**row, "workers": tuple(row["workers"])}) for row in data["stages"]),
            workers=tuple(
                Worker(
                    tuple(row["devices"]),
                    tuple(Slot.parse(text) for text in row["slots"]),
                    tuple(row.get("slow", ())),
                )
                for row in data["workers"]
            ),
            zero=data["zero"],
            recompute=tuple(data["recompute"]),
            shardings=tuple(_sharding(row) for row in data["shardings"]),
            synchronization=_synchronization(data.get("synchronization") or data["synchronisation"]),
            steps=data.get("steps", 1),
            notes=data.get("notes", {}),
            slices=tuple(Slice(*row) for row in data.get("slices", ())),
            slot_overhead=data.get("slot_overhead", 0.0),
            training=Training.from_json(data["training"]) if data.get("training") else None,
            checkpoints=tuple(data.get("checkpoints", ())),
            saved=tuple(data.get("saved", ())),
            overlapped=data.get("overlapped", False),
            zero_group=data.get("zero_group", 0),
            blocking=data.get("blocking", False),
            joined=tuple(data.get("joined", ())),
            engine=data.get("engine", PLAIN),
            host_optimizer=data.get("host_optimizer", False),
            rewritten=tuple(RewrittenLayer.from_json(row) for row in data.get("rewritten", ())),
        )


def _synchronization(row: Mapping[str, Any]) -> Synchronization:
    buckets = tuple((begin, end) for begin, end in row.get("buckets", ()))
    lists = {"servers": tuple(row["servers"]), "shares": tuple(row.get("shares", ())), "buckets": buckets}
    return Synchronization(**{**row, **lists})


def _sharding(row: Mapping[str, Any]) -> Sharding:
    passes = {name: tuple(Collective(**entry) for entry in row[name]) for name in ("forward", "backward")}
    return Sharding(**{**row, **passes})
