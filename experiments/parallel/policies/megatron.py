"""Megatron-LM: tensor parallelism inside a node, pipelines across nodes, data parallelism with what is left.

"t", "p", "d", "v", "b" and "m" of SC'21 are ``tensor``, ``pipeline``, the devices that remain,
``interleaved``, ``micro_batch`` and the micro-batches of a pipeline. Sequence parallelism and selective
recomputation are those of MLSys'23, context parallelism that of Megatron-Core. What a spec leaves open
follows SC'21's takeaways: tensor parallelism up to the devices of a node, then pipeline stages until the
model fits, then data parallelism (section 3), or a search over all of them (``strategy = "search"``).

Stages differ by one block at most. Embedding and head count as blocks if asked, as Llama 3, Megatron-Core and
torchtitan do. Messages between stages overlap, as in Megatron-Core; Megatron-LM of 2021 waited for each
(megatron/p2p_communication.py).

The experts of a mixture are divided among devices of a stage as Liu et al. do ("MoE Parallel Folding", 2025;
Megatron-Core with an expert-tensor-parallel size of 1): ``expert`` neighbors share them, however attention is
divided, and gradients of an expert are summed among those that hold it. ``skew`` is what a router's imbalance
costs: all wait for the device of the fullest expert. No token is dropped, unless a ``capacity`` gives every
expert as many (Megatron-Core's capacity factor, padded to it). ``dispatch`` "nodes" is what DeepEP
does: over the network a token goes once to each node that has experts of it, and there to each of these; here
one after the other, there one behind the other.

Not reproduced: uneven heads, experts cut into parts, exchanges of tokens behind other computation (DualPipe,
shared experts). Measured runs leave out context and expert parallelism, attention cores that are computed
again alone, ZeRO 2 and 3 in pipelines (which Megatron-LM refuses as well), and messages that hold up their
sender.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.budget import caveat
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import LivePolicy, ParallelPlan, ParallelPolicy, PlanningEstimate
from experiments.parallel.interface.engines import ENGINES, PLAIN
from experiments.parallel.planning.degrees.search import by_rule, search
from experiments.parallel.planning.transformers.plan import GATHERING, RECOMPUTATION, Degrees, megatron_plan
from experiments.parallel.planning.transformers.shardings import BESIDE, EXCHANGES
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer_layers import OPERATORS

#: How tokens travel to experts.
DISPATCH = ("copies", "nodes")


@dataclass(frozen=True)
class Megatron(LivePolicy, ParallelPolicy):
    """Tensor, sequence, pipeline and data parallelism of a transformer, by hand, rule or search."""

    name: ClassVar[str] = "megatron"
    mechanism: ClassVar[str] = "divided tensors"
    layers: ClassVar[str] = OPERATORS
    fp32_gradients: ClassVar[bool] = True

    strategy: str = knob(
        "rule",
        "degrees that are left open: by SC'21's rule; or a search over all of them",
        choices=("rule", "search"),
    )
    tensor: int | None = knob(None, "devices that share every layer (t)", low=1, high=1024)
    pipeline: int | None = knob(None, "devices of a pipeline (p)", low=1, high=4096)
    interleaved: int = knob(1, "model chunks on each device of a pipeline (v)", low=1, high=256)
    micro_batch: int = knob(1, "samples of a micro-batch (b)", low=1, high=65536)
    context: int = knob(1, "devices that share a sequence", low=1, high=1024)
    sequence_parallel: bool = knob(False, "divide by tokens what tensor parallelism replicates")
    recompute: str = knob(
        "none",
        "computed again: nothing, attention cores, blocks (Megatron-LM's full), everything with the logits",
        choices=RECOMPUTATION,
    )
    zero: int = knob(
        0, "ZeRO stage among data-parallel devices; 1 is the distributed optimizer", choices=(0, 1, 2, 3)
    )
    shard: int = knob(
        0, "data-parallel devices that divide states, the groups copies (hybrid); 0: all", low=0, high=65536
    )
    gather: str = knob(
        "ahead",
        "ZeRO 1 and 2 hand out updated weights ahead of forward passes, behind the update, or by owner; "
        "ZeRO 1 by slices of every tensor as well, having summed whole gradients",
        choices=GATHERING,
    )
    evaluations: int = knob(
        10_000_000, "plans that a search evaluates before the best so far is taken", low=1, high=10**12
    )
    expert: int | None = knob(
        None, "devices that share the experts of a block; empty: those of a node", low=1, high=4096
    )
    skew: float = knob(1.0, "load of the fullest expert over the mean", low=1.0, high=1024.0)
    capacity: float = knob(
        0.0,
        "tokens of every expert over the mean: more are dropped, fewer filled up; 0: none is dropped",
        low=0.0,
        high=1024.0,
    )
    dispatch: str = knob(
        "copies",
        "a token travels to each of its experts, or once to each node that has any",
        choices=DISPATCH,
    )
    overlap: bool = knob(True, "tensor-parallel collectives of the backward pass overlap weight gradients")
    overlap_products: bool = knob(
        False, "tensor-parallel collectives overlap the products that they feed or follow, in parts"
    )
    keep_gathered: bool = knob(
        False,
        "inputs that sequence parallelism gathered stay whole for the weights' gradients, as DTensor has it; "
        "else they are gathered again",
    )
    overlap_gradients: bool = knob(
        True, "gradients are reduced behind backward passes, ZeRO's weights gathered behind forward passes"
    )

    context_exchange: str = knob(
        BESIDE,
        "keys and values of devices that share a sequence come: while these compute; in a ring of kernels "
        "whose results are merged; before they compute",
        choices=EXCHANGES,
    )
    context_balanced: bool = knob(
        True, "devices that share a sequence have an early and a late part of it each"
    )
    overlap_messages: bool = knob(
        True, "messages between stages travel while others are computed; else a device waits for its own"
    )
    embedding_blocks: int = knob(0, "blocks for which the embedding counts in its stage", low=0, high=1024)
    engine: str = knob(
        PLAIN,
        "who carries the plan out, and holds buffers of its own on top of states and activations",
        choices=ENGINES,
    )
    head_blocks: int = knob(0, "blocks for which the head counts in its stage", low=0, high=1024)
    host_optimizer: bool = knob(False, "the host has the optimizer's state and updates the weights")
    first_extra: int = knob(0, "blocks that the first stage has more, and the last fewer", low=0, high=1024)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if model.transformer is None:
            wanted = "a decoder-only transformer's configuration or sheet"
            raise BadInput("is not known by its sizes", model.name, wanted)
        if self.strategy == "search":
            return self._search(model, cluster, batch, estimate)
        asked = self.degrees(cluster)
        names = ("tensor", "pipeline", *(("expert",) if model.transformer.mixture else ()))
        left_open = [name for name in names if getattr(self, name) is None]
        layout = by_rule(estimate, batch, asked, left_open) if left_open else asked
        return megatron_plan(model, cluster, batch, layout)

    def degrees(self, cluster: Hardware) -> Degrees:
        return Degrees(
            tensor=self.tensor or 1,
            pipeline=self.pipeline or 1,
            interleaved=self.interleaved,
            micro_batch=self.micro_batch,
            context=self.context,
            sequence=self.sequence_parallel,
            recompute=self.recompute,
            zero=self.zero,
            overlap=self.overlap,
            overlap_products=self.overlap_products,
            overlap_gradients=self.overlap_gradients,
            shard=self.shard,
            gather=self.gather,
            context_exchange=self.context_exchange,
            context_balanced=self.context_balanced,
            overlap_messages=self.overlap_messages,
            embedding_blocks=self.embedding_blocks,
            head_blocks=self.head_blocks,
            first_extra=self.first_extra,
            expert=self.expert or 1,
            skew=self.skew,
            node=cluster.node.device_count if self.dispatch == "nodes" else 0,
            engine=self.engine,
            keep_gathered=self.keep_gathered,
            capacity=self.capacity,
            host_optimizer=self.host_optimizer,
        )

    def _search(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        """The degrees that were asked for are not looked at; what the search found stands in the plan's
        notes.
        """
        found = search(estimate, batch, self.degrees(cluster), self.evaluations)
        plan = megatron_plan(model, cluster, batch, found.best)
        notes = {
            "predicted_step_time": found.step_time,
            "predicted_peak_memory": found.peak_memory,
            "lower_bound": found.bound,
            "plans": len(found.plans),
            "plans_evaluated": found.evaluated,
            "rejected": found.rejections(),
            **(caveat(self.evaluations, "plans", "evaluations") if found.ended_early else {}),
        }
        return replace(plan, notes={**plan.notes, **notes})
