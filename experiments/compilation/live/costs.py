"""What an op costs.

Measured on this host, once for each op and types, or by roofline on named hardware.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from experiments.compilation.interface import OP, Graph, GraphNode, ObservedRanges, Ref, TensorType, map_refs
from experiments.compilation.live.calibration import Calibrator
from experiments.compilation.live.types import Inference, constant, function
from experiments.core import jsonio
from experiments.core.progress import Progress, silent
from experiments.hardware.parts import Device
from experiments.hardware.roofline import op_time
from experiments.profiling import cache
from experiments.profiling.cost import count_bytes_moved, flops
from experiments.profiling.timing import device_name, new_clock
from experiments.workloads.substitutions import Substitutions

#: An op is timed for at least this long and this often, and until the fewest calls lie within a tenth of the
#: least: on a busy host the first may all be disturbed. It ends in any case after the most seconds or calls.
LEAST_SECONDS, MOST_SECONDS, FEWEST_CALLS, MOST_CALLS = 5e-3, 0.25, 3, 100


class NodeWork(NamedTuple):
    """FLOPs (of products only) and bytes read and written by one call of an op; a view does neither."""

    flops: int
    bytes: int


class Prices(Protocol):
    """Seconds of one call of ``node`` on arguments of these types."""

    def seconds(self, node: GraphNode, arguments: Any, keywords: Any, work: NodeWork) -> float: ...


class Bench:
    """The ``Workbench`` of one run; every price is asked for once."""

    def __init__(
        self,
        types: Inference,
        prices: Prices,
        progress: Progress = silent,
        calibrator: Calibrator | None = None,
        rules: Substitutions | None = None,
    ) -> None:
        self.types = types
        self.progress = progress
        self.rules = rules
        self._calibrator = calibrator
        self._prices = prices
        self._known: dict[Any, tuple[float, NodeWork]] = {}

    def seconds(self, node: GraphNode, graph: Graph) -> float:
        return self._price(node, graph)[0]

    def work(self, node: GraphNode, graph: Graph) -> NodeWork:
        return self._price(node, graph)[1]

    def ranges(self, refs: Sequence[Ref], rule: str, batches: int, symmetric: bool) -> ObservedRanges:
        assert self._calibrator is not None, "a bench without a model cannot calibrate"
        return self._calibrator.ranges(refs, rule, batches, symmetric)

    def cost(self, graph: Graph) -> float:
        return sum(self.seconds(node, graph) for node in graph.ops if node.name in graph.live)

    def total_work(self, graph: Graph) -> NodeWork:
        rows = [self.work(node, graph) for node in graph.ops if node.name in graph.live]
        return NodeWork(sum(row.flops for row in rows), sum(row.bytes for row in rows))

    def _price(self, node: GraphNode, graph: Graph) -> tuple[float, NodeWork]:
        if node.kind != OP or node.once:
            return 0.0, NodeWork(0, 0)
        arguments, keywords = map_refs((node.arguments, node.keywords), graph.type)
        key = (node.target, repr(arguments), repr(keywords))
        if key not in self._known:
            work = self._work(node, arguments, keywords)
            self._known[key] = self._prices.seconds(node, arguments, keywords, work), work
        return self._known[key]

    def _work(self, node: GraphNode, arguments: Any, keywords: Any) -> NodeWork:
        if node.views or node.effect:
            return NodeWork(0, 0)
        with FlopCounterMode(display=False) as counter:  # sees the products inside composite ops
            args, kwargs, out = self.types.fake_call(node.target, arguments, keywords)
        op = function(node.target)
        return NodeWork(
            flops(op, args, kwargs, out) or counter.get_total_flops(),
            count_bytes_moved(op, args, kwargs, out),
        )


class Roofline:
    """The larger of compute and memory time, plus the gap between kernels; views are free."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def seconds(self, node: GraphNode, arguments: Any, keywords: Any, work: NodeWork) -> float:
        if node.views or node.effect:
            return 0.0
        dtype = next((t.dtype for t in tensor_types((arguments, keywords))), node.dtype)
        return op_time(self._device, work.flops, work.bytes, dtype) + self._device.kernels.launch


class MeasuredPrices:
    """Seconds of ops: the least disturbed of some calls on random tensors of the given types.

    Kept on disk for this host, device and threads.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        place = [platform.node(), device_name(device), torch.get_num_threads(), torch.__version__]
        self._path = cache.folder() / "ops" / f"{jsonio.digest(place)}.json"
        self._known: dict[str, float] = _load_table(self._path)
        self._fresh = 0

    def seconds(self, node: GraphNode, arguments: Any, keywords: Any, work: NodeWork) -> float:
        key = repr((node.target, arguments, keywords))
        if key not in self._known:
            self._known[key] = self._measure(node.target, arguments, keywords)
            self._fresh += 1
        return self._known[key]

    def keep(self) -> None:
        """Write what was measured since the table was read."""
        if self._fresh:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(f".{time.time_ns()}.part")
            part.write_text(json.dumps(_load_table(self._path) | self._known))
            part.replace(self._path)
            self._fresh = 0

    @torch.no_grad()
    def _measure(self, target: str, arguments: Any, keywords: Any) -> float:
        generator = torch.Generator(self._device).manual_seed(0)
        least = min((size for t in tensor_types((arguments, keywords)) for size in t.shape), default=1)
        args = random_values(arguments, generator, max(least, 1))
        kwargs = {name: random_values(value, generator, max(least, 1)) for name, value in keywords}
        op, spent, times = function(target), 0.0, []
        for call in range(2 + MOST_CALLS):
            clock = new_clock(self._device)
            clock.tick()
            op(*args, **kwargs)
            clock.tick()
            if call < 2:
                continue
            times.append(float(clock.intervals()[0]))
            spent += times[-1]
            if (
                len(times) >= FEWEST_CALLS
                and spent >= LEAST_SECONDS
                and (_is_settled(times) or spent > MOST_SECONDS)
            ):
                break
        return min(times)


def _is_settled(times: Sequence[float]) -> bool:
    return sorted(times)[FEWEST_CALLS - 1] <= 1.1 * min(times)


def _load_table(path: Path) -> dict[str, float]:
    """Return the table on disk; a damaged one is measured once more."""
    try:
        table = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {key: float(value) for key, value in table.items()} if isinstance(table, Mapping) else {}


def tensor_types(value: Any) -> list[TensorType]:
    """Return the tensors among an op's arguments, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, TensorType)]


def random_values(value: Any, generator: torch.Generator, high: int) -> Any:
    """Return ``value`` with a random tensor for every type.

    N(0, 1), or whole numbers below ``high`` (they may be indices).
    """
    if isinstance(value, tuple):
        return [random_values(entry, generator, high) for entry in value]
    if isinstance(value, TensorType):
        return random_tensor(value, generator, high)
    return constant(value)


def random_tensor(kind: TensorType, generator: torch.Generator, high: int) -> torch.Tensor:
    dtype = getattr(torch, kind.dtype)
    made = torch.empty_strided(kind.shape, kind.stride, dtype=dtype, device=generator.device)
    if dtype.is_floating_point or dtype.is_complex:
        draw = torch.randn(kind.shape, generator=generator, device=generator.device)
    else:
        top = 2 if dtype == torch.bool else high
        draw = torch.randint(0, top, kind.shape, generator=generator, device=generator.device)
    if 0 in kind.stride:  # an expanded tensor: its storage holds fewer numbers
        return made.zero_()
    return made.copy_(draw)
