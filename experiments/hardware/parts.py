"""What hardware is made of: frozen records in SI units (bytes, seconds, FLOP/s), each with its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.core.errors import BadInput

# The type that does the work where a device has no arithmetic of its own for a type: values are widened
# first, so the op runs at the wider type's rate. Integer and boolean arithmetic runs on the float32 lanes.
WIDER = {
    "float8": "float16",
    "bfloat16": "float32",
    "float16": "float32",
    "tfloat32": "float32",
    "float32": "float64",
    "int8": "float32",
    "uint8": "float32",
    "int16": "float32",
    "int32": "float32",
    "int64": "float32",
    "bool": "float32",
}


class Peaks(Mapping[str, float]):
    """Peak FLOP/s by dtype name: an immutable, hashable mapping.

    So devices can be cached and compared.
    """

    def __init__(self, peaks: Mapping[str, float]) -> None:
        self._peaks = dict(sorted(peaks.items()))

    def __getitem__(self, dtype: str) -> float:
        return self._peaks[dtype]

    def __iter__(self) -> Iterator[str]:
        return iter(self._peaks)

    def __len__(self) -> int:
        return len(self._peaks)

    def __hash__(self) -> int:
        return hash(tuple(self._peaks.items()))

    def __repr__(self) -> str:
        return f"Peaks({self._peaks})"


@dataclass(frozen=True)
class Link:
    """A channel of ``bandwidth`` bytes/s per direction and ``latency`` s per transfer (alpha).

    A link that is not ``duplex`` shares its bandwidth between the two directions.
    """

    name: str
    bandwidth: float
    latency: float
    duplex: bool
    source: str

    def time(self, size: float) -> float:
        """Seconds for one transfer of ``size`` bytes alone on the link: alpha + size / bandwidth."""
        return self.latency + size / self.bandwidth

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Host:
    """The memory and the processor next to the devices of a node; bandwidth in bytes/s over all channels.

    ``peak_flops`` is the processor's float32 rate (0: not known). ``network_step`` are the least seconds of a
    step of a ring over several nodes, also where it stays in one (NCCL 2.19, src/graph/tuning.cc: three times
    a net overhead of 1 us, of 2 us with AMD's processors).
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    cores: int
    source: str
    peak_flops: float = 0.0
    network_step: float = 3e-6

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Storage:
    """A tier beyond DRAM (SSD, persistent memory, CXL): bytes/s each way, seconds per access, bytes.

    What lies there is whole pages of ``page_bytes``. A processor or device can use ``byte_addressable``
    memory where it lies.
    """

    name: str
    read_bandwidth: float
    write_bandwidth: float
    latency: float
    capacity_bytes: int
    source: str
    page_bytes: int = 4096
    byte_addressable: bool = False

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class KernelRates:
    """How kernels of a device fall short of its peaks, by size and shape.

    ``hardware.products`` has the formulas.

    - ``product_efficiency``: the share of the peak inside a large tile.
    - ``fill``: the terms of the inner loop that a tile's start and end cost.
    - ``stream_efficiency``: the share of the memory bandwidth of element-wise kernels.
    - ``attention_efficiency``: the share of the peak of a fused attention kernel.
    - ``attention_of_2024``: whether FlashAttention 3, which is written for Hopper, runs on it.
    - ``launch``: the seconds between kernels.
    - ``collective_efficiency``: the share of the peer link's bandwidth that collectives reach.
    - ``network_efficiency``: that of a network adapter.
    - ``occupied``: the share of the multiprocessors that a collective of weights takes from concurrent
      computation.
    - ``reserved_bytes``: what context, libraries and communicators hold of the memory (an assumption).
    - ``fragmentation``: the share of activations that allocators lose (an assumption).
    - ``fitted_on``: the published figures behind them.
    """

    name: str
    multiprocessors: int
    product_efficiency: float
    fill: float
    stream_efficiency: float
    attention_efficiency: float
    launch: float
    collective_efficiency: float
    network_efficiency: float
    occupied: float
    reserved_bytes: int
    fragmentation: float
    fitted_on: str
    source: str
    attention_of_2024: bool = False

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


#: For devices without figures of their own: what well-tuned kernels of many devices reach. Nothing was
#: fitted.
USUAL_KERNELS = KernelRates(
    name="usual",
    multiprocessors=80,
    product_efficiency=0.85,
    fill=64.0,
    stream_efficiency=0.8,
    attention_efficiency=0.5,
    launch=4e-6,
    collective_efficiency=1.0,
    network_efficiency=1.0,
    occupied=0.0,
    reserved_bytes=2**30,
    fragmentation=0.03,
    fitted_on="nothing",
    source="assumption",
)


@dataclass(frozen=True)
class ComputeUnits:
    """The units of a device that run thread blocks (streaming multiprocessors), and what limits the blocks.

    ``count`` units of ``partitions`` schedulers run warps of ``warp`` threads. Of each unit:
    ``shared_bytes``, ``registers`` (32 bits each), ``threads`` and ``blocks`` that can be resident; of a
    block the caps with its name. Memory is read and written in whole transactions, shared memory through
    ``banks`` of ``bank_bytes``. ``shared_bandwidth`` is in bytes/s over all units. ``compute_share`` and
    ``memory_share`` are the shares of the device's peaks that plain kernels reach; ``bandwidth_warps`` warps
    in flight on every unit reach 63 % of the second.
    """

    name: str
    count: int
    partitions: int
    warp: int
    bandwidth_warps: float
    shared_bytes: int
    shared_bytes_per_block: int
    registers: int
    registers_per_block: int
    registers_per_thread: int
    threads: int
    threads_per_block: int
    blocks: int
    banks: int
    bank_bytes: int
    write_transaction_bytes: int
    read_transaction_bytes: int
    shared_bandwidth: float
    compute_share: float
    memory_share: float
    source: str

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


#: The source of efficiencies where none are assumed.
FULL_PEAK = "none: times from the peaks are lower bounds"


@dataclass(frozen=True)
class Device:
    """One accelerator (or a CPU seen as one).

    ``peak_flops`` are dense matrix rates in FLOP/s by dtype name. The efficiencies scale the peaks to what a
    well-tuned large op reaches; 1.0 means that no such figure is assumed and times are lower bounds.
    ``host_link`` leads to the host, ``peer_link`` to a device of the same node. ``units`` is known of some
    GPUs; of others ``compute_units`` at least, their number (0: not known).
    """

    name: str
    vendor: str
    year: int
    memory_bytes: int
    memory_bandwidth: float
    peak_flops: Peaks
    host_link: Link
    peer_link: Link
    source: str
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    efficiency_source: str = FULL_PEAK
    kernels: KernelRates = USUAL_KERNELS
    units: ComputeUnits | None = None
    compute_units: int = 0

    @property
    def at_full_peak(self) -> bool:
        """Whether times by roofline are lower bounds: nothing says what real kernels reach."""
        return self.compute_efficiency == self.memory_efficiency == 1.0

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s for ``dtype``, or of the next wider type the device has (see ``WIDER``)."""
        candidate = dtype
        while candidate not in self.peak_flops:
            if candidate not in WIDER:
                raise BadInput(f"no peak FLOP/s for dtype {dtype!r}", self.name, ", ".join(self.peak_flops))
            candidate = WIDER[candidate]
        return self.peak_flops[candidate]

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        links = {"host_link": self.host_link.to_json(), "peer_link": self.peer_link.to_json()}
        rates = {
            "peak_flops": dict(self.peak_flops),
            "kernels": self.kernels.to_json(),
            "units": self.units.to_json() if self.units else None,
        }
        if not self.compute_units:
            del plain["compute_units"]
        return {**plain, **links, **rates}


@dataclass(frozen=True)
class Node:
    """One machine: ``device_count`` equal devices joined by ``link``, a host and a storage tier.

    ``remote`` is byte-addressable memory beyond the host's (persistent memory, CXL), where the node has some;
    ``network`` its adapters, where they are others than the cluster's. ``name`` and ``source`` are those of
    the machine's sheet, where a spec names one.
    """

    device: Device
    device_count: int
    link: Link
    host: Host
    storage: Storage
    remote: Storage | None = None
    network: Link | None = None
    name: str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        parts = ("device", "link", "host", "storage", "remote", "network")
        some = {name: part.to_json() for name in parts if (part := getattr(self, name))}
        sheet = {"name": self.name, "source": self.source} if self.name else {}
        return {**sheet, **some, "device_count": self.device_count}


@dataclass(frozen=True)
class NodeGroup:
    """``count`` equal nodes."""

    count: int
    node: Node

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "node": self.node.to_json()}


@dataclass(frozen=True)
class Switch:
    """Leaf switches of ``nodes`` nodes, joined by a spine.

    A leaf's uplinks carry what its nodes can send divided by ``oversubscription``; crossing the spine takes
    ``latency`` seconds more than staying under one leaf.
    """

    nodes: int
    oversubscription: float = 1.0
    latency: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Hardware:
    """What a run is carried out on: groups of equal nodes joined by one ``network`` (bytes/s per node).

    It is the slowest where groups have their own. A node's network bandwidth is that of ``rails`` separate
    adapters, each for an equal share of its devices. Without a ``switch`` nodes are joined all to all.
    ``stragglers`` are (device, factor): they compute so many times longer than their sheet says, which no
    planner is told. ``collectives`` are (kind, link): what a node's links are like to that kind of
    collective, where it was timed by itself. ``warnings`` say what was assumed that a spec should say.
    """

    name: str
    groups: tuple[NodeGroup, ...]
    network: Link
    rails: int = 1
    switch: Switch | None = None
    stragglers: tuple[tuple[int, float], ...] = ()
    collectives: tuple[tuple[str, Link], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """The first node: the only kind there is unless the cluster is mixed."""
        return self.groups[0].node

    @property
    def device(self) -> Device:
        """The first device: the only kind there is unless the cluster is mixed."""
        return self.node.device

    def seen_by(self, kind: str) -> Hardware:
        """The cluster as that kind of collective sees it."""
        link = dict(self.collectives).get(kind)
        return self if link is None else self.with_node_link(link)

    def with_node_link(self, link: Link) -> Hardware:
        """The cluster with ``link`` inside every node."""
        groups = tuple(replace(group, node=replace(group.node, link=link)) for group in self.groups)
        return replace(self, groups=groups, collectives=())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, in the order of the groups."""
        return tuple(group.node for group in self.groups for _ in range(group.count))

    @property
    def node_count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def device_count(self) -> int:
        return sum(group.count * group.node.device_count for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """The whole description with every figure and source, for a run's provenance."""
        return {
            "name": self.name,
            "groups": [group.to_json() for group in self.groups],
            "network": self.network.to_json(),
            "rails": self.rails,
            "switch": self.switch.to_json() if self.switch else None,
            "stragglers": {str(device): factor for device, factor in self.stragglers},
        }
