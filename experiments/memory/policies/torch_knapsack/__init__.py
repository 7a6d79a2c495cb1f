"""torch's activation memory budget (``torch._functorch``, ``activation_memory_budget``) as a policy on a
Step.

The compiler's partitioner decides which forward values are saved: a minimum cut in which expensive ops are
banned from running again. With a budget below 1 the bans are lifted in turn: those against values used far
apart and against long chains, then those against ops that are not on the list of cheap ones; the first cut
whose saved bytes, as a share of the first cut's, lie under the budget is taken. Where none does, the
expensive values left are the items of a knapsack: worth the time of their ops, as heavy as their share of
bytes, in a sack of the budget; the others may run again.

A value that runs again does so once and is held for all its readers. Compiled as a whole, a step then makes
everything again before its first backward op, and holds it; so layers are compiled one by one (``regions``):
what a block reads of others is saved, the rule is applied to each with the same budget, and a budget of 0
saves nothing else. Where no budget fits, the step does not.

A step captured with ``kernels`` compiled was cut by torch's own partitioner already: what it saves is the
default, and budgets below 1 are shares of that.

What differs on another Step: ops are not fused, so every value is materialized (torch doubles the weight of
those that are not); "far apart" means beyond the next op that no kernel fuses with; times are the step's
(torch: FLOPs or a profile); parameters, optimizer state and the batch stay anyway and are free. Without a
``budget`` the largest of 1, 0.95, ... 0 that fits the device is taken, and nothing is dropped where the step
fits. A budget is a target, not a promise: the simulation says what it took.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.budget import caveat
from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.interface.activations import CONV, FC, layer_type, saved_activations
from experiments.memory.planning.attention import FUSED, PRODUCTS
from experiments.memory.planning.rematerialize import Demand, Rematerializer
from experiments.memory.policies.torch_knapsack.knapsack import IntegerKnapsack, Solver, dynamic, greedy
from experiments.memory.policies.torch_knapsack.mincut import ForwardGraph
from experiments.memory.policies.torch_knapsack.regions import compiled_regions
from experiments.workloads.model import COMPILED
from experiments.workloads.step import Step

#: Parts of names (lower case) of ops that are not on torch's list of cheap ones although they multiply
#: nothing.
NOT_CHEAP = (
    "sum",
    "mean",
    "norm",
    "softmax",
    "pool",
    "embedding",
    "gather",
    "index",
    "cat",
    "sort",
    "topk",
    "cumsum",
)
LONG_CHAIN = 10
GRID = [i / 20 for i in range(20, -1, -1)]


@dataclass(frozen=True)
class Region:
    """A graph that is compiled by itself; what it reads of others is saved.

    - ``hard``: values that cannot be recomputed; ``heavy``: those of products and the like.
    - ``cuts``: the values to save, with fewer bans each.
    """

    graph: ForwardGraph
    hard: frozenset[int]
    heavy: frozenset[int]
    cuts: tuple[list[int], ...]

    @property
    def own(self) -> set[int]:
        """The values that are made here."""
        return set(self.graph.tensors) - set(self.graph.free)

    @property
    def most(self) -> int:
        """Bytes that are saved by default, which a budget is a share of."""
        return max(1, self.bytes_of(self.cuts[0]))

    def bytes_of(self, tensors: Collection[int]) -> int:
        return sum(self.graph.bytes[tensor] for tensor in tensors)

    def choose_saved(self, budget: float, solver: Solver, seconds: Mapping[int, float]) -> list[int]:
        """Values to save at ``budget``, besides what is read of other regions."""
        if budget >= 1:
            return self.cuts[0]
        if budget <= 0:
            return sorted(self.hard)
        for cut in self.cuts[1:]:
            if self.bytes_of(cut) / self.most < budget:
                return cut
        items = [t for t in self.cuts[-1] if t in self.heavy - self.hard and self.graph.bytes[t]]
        weights = [self.graph.bytes[t] / self.most for t in items]
        chosen = {items[i] for i in solver(weights, [seconds[t] for t in items], budget)}
        return self.graph.minimum_cut(self.hard | chosen)


class Partition:
    """The forward pass of ``step`` as the partitioner sees it, region by region.

    ``choose_saved(budget, solver)`` returns the values to keep.
    """

    def __init__(self, step: Step, whole: bool = False) -> None:
        self.step = step
        self.remake = Rematerializer(step)
        lineage = self.remake.lineage
        self.activations = [s for s in saved_activations(step) if lineage.writers[s.tensor]]
        loss = max((saved.last_forward for saved in self.activations), default=-1)
        self.makers = {
            t: [op for op in lineage.writers[t] if op <= loss]
            for t in range(len(step.tensors))
            if not lineage.persistent[t] and lineage.writers[t] and lineage.writers[t][0] <= loss
        }
        self.tensors = sorted(self.makers, key=lambda t: (self.makers[t][0], t))
        self.parents = {t: self._parents(t) for t in self.tensors}
        self.seconds = {t: sum(float(step.ops.seconds[op]) for op in self.makers[t]) for t in self.tensors}
        self.hard = self._cannot_run_again()
        self.heavy = {t for t in self.tensors if any(self._is_heavy(op) for op in self.makers[t])}
        self.expensive = self.heavy | {
            t for t in self.tensors if any(self._is_not_cheap(op) for op in self.makers[t])
        }
        forward = list(range(loss + 1))
        ops = [forward] if whole else compiled_regions(step, forward, self._is_heavy)
        self.home = {op: i for i, region in enumerate(ops) for op in region}
        self.barriers = [op for op in range(len(step.ops)) if self._is_heavy(op) or self._is_not_cheap(op)]
        made_in: list[list[int]] = [[] for _ in ops]
        for tensor in self.tensors:
            made_in[self.home[self.makers[tensor][0]]].append(tensor)
        self.regions = [self._region(own) for own in made_in]
        self.read_by_others = sorted(set().union(*(region.graph.free for region in self.regions)))

    def _region(self, own: Sequence[int]) -> Region:
        """The region that makes the values ``own``, and those of others that they are made from."""
        mine = set(own)
        free = dict.fromkeys(p for t in own for p in self.parents[t] if p not in mine)
        tensors = sorted((*free, *own), key=lambda t: (self.makers[t][0], t))
        graph = ForwardGraph(
            tensors,
            {t: self.parents[t] if t in mine else [] for t in tensors},
            {saved.tensor for saved in self.activations if saved.tensor in mine},
            {t: int(self.step.tensors.bytes[t]) for t in tensors},
            frozenset(free),
        )
        default = self.expensive | self._far_apart(mine) | self._long(graph)
        if self.step.facts.get("kernels") == COMPILED:
            default |= set(graph.needed)
        bans = (default, self.expensive, self.heavy)
        cuts = tuple(graph.minimum_cut(self.hard | banned) for banned in bans)
        return Region(graph, frozenset(self.hard & mine), frozenset(self.heavy & mine), cuts)

    def _parents(self, tensor: int) -> list[int]:
        reads = dict.fromkeys(s for op in self.makers[tensor] for s in self.remake.lineage.reads[op])
        first = self.makers[tensor][0]
        return [s for s in reads if s != tensor and s in self.makers and self.makers[s][0] < first]

    def _cannot_run_again(self) -> set[int]:
        """Values whose ops would read something else by the time that a value made from them is needed."""
        need = {saved.tensor: saved.first_backward for saved in self.activations}
        for tensor in reversed(self.tensors):
            for parent in self.parents[tensor]:
                need[parent] = max(need.get(parent, 0), need.get(tensor, 0))
        return {
            t
            for t, makers in self.makers.items()
            if any(self.remake.is_fixed(op, lambda _: False, need.get(t, 0)) for op in makers)
        }

    def _name(self, op: int) -> str:
        return self.step.ops.target[op].lower()

    def _is_heavy(self, op: int) -> bool:
        name = self._name(op)
        return layer_type(name) in (CONV, FC) or any(part in name for part in (*PRODUCTS, *FUSED))

    def _is_not_cheap(self, op: int) -> bool:
        return any(part in self._name(op) for part in NOT_CHEAP)

    def _far_apart(self, own: Collection[int]) -> set[int]:
        """Values that a forward op reads after the next op that is not fused with others."""
        found = set()
        for saved in self.activations:
            if saved.tensor not in own:
                continue
            made = self.makers[saved.tensor][-1]
            barrier = next((op for op in self.barriers if op > made), saved.last_forward)
            if barrier < saved.last_forward:
                found.add(saved.tensor)
        return found

    def _long(self, graph: ForwardGraph) -> set[int]:
        """Values that end a chain of ``LONG_CHAIN`` cheap ops; the next chain begins after them."""
        depth: dict[int, int] = {}
        found = set()
        for tensor in graph.tensors:
            before = max((depth[parent] for parent in graph.parents[tensor]), default=0)
            depth[tensor] = 0 if tensor in self.expensive else before + 1
            if depth[tensor] > LONG_CHAIN:
                found.add(tensor)
                depth[tensor] = 0
        return found

    def choose_saved(self, budget: float, solver: Solver) -> list[int]:
        """Values to save at ``budget``: of each region its own choice, and what other regions read."""
        chosen = [region.choose_saved(budget, solver, self.seconds) for region in self.regions]
        return sorted({*self.read_by_others, *(t for kept in chosen for t in kept)})

    def plan(self, budget: float, solver: Solver) -> MemoryPlan:
        """What is not saved is recomputed before the first backward op that reads it."""
        kept = set(self.choose_saved(budget, solver))
        wanted: dict[int, list[int]] = {}
        for saved in self.activations:
            if saved.tensor not in kept:
                wanted.setdefault(saved.first_backward, []).append(saved.tensor)
        demands = self._shared([Demand(at, tuple(wanted[at])) for at in sorted(wanted)], kept)
        default = sum(region.most for region in self.regions)
        kept_bytes = sum(region.bytes_of(region.own & kept) for region in self.regions)
        notes = {"budget": budget, "saved_share": kept_bytes / default, "regions": len(self.regions)}
        return MemoryPlan(self.remake.moves_for(demands, kept), notes=notes)

    def _shared(self, demands: list[Demand], kept: set[int]) -> list[Demand]:
        """Everything that a rerun makes on its way is held for later ones, so that no op runs again twice."""
        here, found = set(kept), []
        for demand in demands:
            chain = self.remake.chain(demand.wanted, here.__contains__, demand.at)
            made = [t for op in chain.ops for t in self.remake.lineage.writes[op] if t in self.makers]
            found.append(Demand(demand.at, tuple(dict.fromkeys((*demand.wanted, *made)))))
            here.update(found[-1].wanted)
        return found


@dataclass(frozen=True)
class TorchKnapsack(MemoryPolicy):
    """torch.compile's activation memory budget: a minimum cut, then a knapsack of the expensive values."""

    name: ClassVar[str] = "torch_knapsack"
    mechanism: ClassVar[str] = "recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    retired: ClassVar[Mapping[str, str]] = {
        "reruns": "it left out: an op runs again once at most, as in torch (regions: what is compiled alone)"
    }

    budget: float | None = knob(
        None, "share of the default saved bytes; empty: the largest that fits", low=0.0, high=1.0
    )
    regions: str = knob(
        "blocks",
        "what is compiled by itself: each repeated block, or the whole step",
        choices=("blocks", "whole"),
    )
    solver: str = knob("dp", "how the knapsack is solved", choices=("dp", "greedy", "ilp"))
    nodes: int = knob(
        1_000_000, "branch-and-bound nodes of each knapsack at most (solver ilp)", low=1, high=10**9
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.budget is None and step.live_peak <= device.capacity:
            return MemoryPlan()
        partition = Partition(step, self.regions == "whole")
        budgets = GRID if self.budget is None else [self.budget]
        exact = IntegerKnapsack(self.nodes, device.progress)
        solvers: dict[str, Solver] = {"dp": dynamic, "greedy": greedy, "ilp": exact}
        for budget in budgets:
            plan = partition.plan(budget, solvers[self.solver])
            if device.estimate(plan).fits:
                break
        ended = caveat(self.nodes, "nodes", "nodes") if exact.ended_early else {}
        return replace(plan, notes={**plan.notes, **ended})
