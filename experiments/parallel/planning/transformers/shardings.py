"""Shardings of a transformer's operators for tensor, sequence and context parallelism.

Source: Shoeybi et al., Megatron-LM, 2019, section 3 (columns, then rows: one all-reduce forward behind the
second product, one backward before the first); Korthikanti et al., MLSys'23, section 4.2 (sequence
parallelism: the all-reduces become an all-gather before and a reduce-scatter behind, and what is between the
pairs is divided too; the input that was gathered is gathered again for the weight gradient); Liu et al., Ring
Attention, 2023, and Dubey et al., Llama 3, 2024, section 3.3.2 (context parallelism); Liu et al., "MoE
Parallel Folding", 2025 (the devices of a pipeline stage share experts, each of which is whole, however they
divide attention). A worker's devices are numbered with the tensor axis innermost, replicas outermost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from experiments.core.units import DTYPE_BYTES
from experiments.parallel.interface import EXPERT, Collective, Sharding
from experiments.workloads.layers import LayerGraph
from experiments.workloads.mixture import Mixture
from experiments.workloads.transformer import Transformer

#: How devices that share a sequence come by the others' keys and values: while they compute, at no other
#: cost; in a ring, whose steps are kernels of their own with results to merge (PyTorch, Transformer Engine);
#: all before they compute (Llama 3).
BESIDE, RING, FIRST = EXCHANGES = ("beside", "ring", "first")


@dataclass(frozen=True)
class WorkerMesh:
    """Devices of a worker: ``tensor`` times ``context``, times the replicas that share experts.

    ``sequence`` divides what tensor parallelism replicates. With ``overlap`` collectives of the backward pass
    overlap with the weight gradients' products, with ``overlap_products`` every collective beside a product
    with that product (asynchronous tensor parallelism). ``exchange`` is one of ``EXCHANGES``; ``balanced``
    sequences give each device an early and a late part, so that a causal mask leaves all the same work.
    ``expert`` devices share the experts of a block, of which the fullest has ``skew`` times the mean load;
    tokens travel once to each group of ``node`` of them (0: once to each of their experts). With
    ``keep_gathered`` the inputs that ``sequence`` gathered stay whole for the weights' gradients (DTensor).
    With a ``capacity`` every expert has so many times the mean load, and what is beyond it is dropped.
    """

    tensor: int = 1
    context: int = 1
    sequence: bool = False
    overlap: bool = True
    overlap_products: bool = False
    exchange: str = BESIDE
    balanced: bool = True
    expert: int = 1
    skew: float = 1.0
    node: int = 0
    keep_gathered: bool = False
    capacity: float = 0.0

    @property
    def joined(self) -> int:
        """Replicas of a worker: the fewest with enough devices to share experts."""
        return self.expert // math.gcd(self.expert, self.tensor * self.context)

    @property
    def shares(self) -> int:
        """Parts of a worker's tokens, each with all that is not an expert's or tensor-parallel."""
        return self.context * self.joined

    @property
    def devices(self) -> int:
        return self.tensor * self.shares

    @property
    def between(self) -> int:
        """Parts of what is between the tensor-parallel products: norms, residuals, their inputs."""
        return self.shares * (self.tensor if self.sequence else 1)


#: Parts of a row's name and what is done with the row.
_COLUMN = ("qkv", "query", "key_value", "expand", "logits", "shared_expand")
_FOLLOWS = ("key", "value", "up", "shared_up")
_ROW = ("projection", "contract", "shared_contract")
_INSIDE = ("query_norm", "key_norm", "rotary", "attention", "activation", "shared_activation")
_EXPERTS = ("experts_expand", "experts_activation", "experts_contract")
_ROUTED = ("dispatch", "combine")


def megatron_shardings(
    model: LayerGraph, mesh: WorkerMesh, layers: Iterable[int] | None = None
) -> tuple[Sharding, ...]:
    """One for every operator of ``model``, or of ``layers``; on one device of those that a capacity cuts."""
    own: Iterable[int] = range(len(model)) if layers is None else layers
    if mesh.devices == 1:
        names = (*_EXPERTS, *_ROUTED) if mesh.capacity else ()
        own = [layer for layer in own if model.layer[layer].rpartition(".")[2] in names]
    return tuple(_Shardings(model, mesh).of(own))


class _Shardings:
    def __init__(self, model: LayerGraph, mesh: WorkerMesh) -> None:
        assert model.transformer is not None
        self.model, self.mesh = model, mesh
        self.transformer: Transformer = model.transformer
        self.size = DTYPE_BYTES[str(model.facts["dtype"])]

    def of(self, layers: Iterable[int]) -> Iterator[Sharding]:
        for layer in layers:
            yield self._of(layer, self.model.layer[layer].rpartition(".")[2])

    def _of(self, layer: int, part: str) -> Sharding:
        if part in _COLUMN:
            read = self._activation(self._read(part))
            kept = self.mesh.shares if self.mesh.keep_gathered else self.mesh.between
            own = self._sharding(layer, "column", self._into(read), self._before(read))
            return replace(own, activations=kept)
        if part in _FOLLOWS:
            return self._sharding(layer, "column", (), ())
        if part in _ROW:
            return self._rows(layer)
        if part == "attention":
            return self._core(layer)
        if part in _INSIDE:
            return self._inside(layer)
        if part in (*_EXPERTS, *_ROUTED):
            return self._experts(layer, part)
        if part == "embedding":
            return self._embedding(layer)
        if part == "loss":
            return self._inside(layer, (self._collective("all_reduce", self._loss_bytes),))
        parts = self.mesh.between
        return Sharding(layer, "sequence", parts, 1, parts)

    # --- collectives of the tensor axis ---------------------------------------------------------------------

    def _collective(self, kind: str, size: float, overlap: bool = False, product: bool = False) -> Collective:
        """``overlap`` with a weight gradient's product, or with the ``product`` that it feeds or follows."""
        together = (overlap and self.mesh.overlap) or (product and self.mesh.overlap_products)
        return Collective(kind, size, ranks=self.mesh.tensor, overlap=together)

    def _activation(self, width: int) -> float:
        """Bytes of a sample's ``width`` values for each token on the devices of one tensor group."""
        return self.transformer.sequence * width * self.size / self.mesh.shares

    def _read(self, part: str) -> int:
        """Values of each token that the first product of a pair reads."""
        latent = self.transformer.latent
        if latent and part == "key_value":
            return latent.key_value + latent.rotary
        return (latent.query if latent and part == "query" else 0) or self.transformer.hidden

    @property
    def _loss_bytes(self) -> float:
        """Of each token the largest logit, the sum of exponentials and the target's logit."""
        return 3.0 * max(4, self.size) * self.transformer.sequence / self.mesh.joined

    def _into(self, read: float) -> tuple[Collective, ...]:
        """Forward, before the first product of a pair."""
        if self.mesh.tensor == 1 or not self.mesh.sequence:
            return ()
        return (self._collective("all_gather", read, product=True),)

    def _before(self, read: float) -> tuple[Collective, ...]:
        """Backward, of the first product of a pair: the gradient of its input."""
        if self.mesh.tensor == 1:
            return ()
        if not self.mesh.sequence:
            return (self._collective("all_reduce", read, overlap=True),)
        scatter = self._collective("reduce_scatter", read, overlap=True)
        if self.mesh.keep_gathered:
            return (scatter,)
        return self._collective("all_gather", read, overlap=True), scatter

    def _behind(self) -> tuple[tuple[Collective, ...], tuple[Collective, ...]]:
        """Forward and backward, of the second product of a pair."""
        if self.mesh.tensor == 1:
            return (), ()
        made = self._activation(self.transformer.hidden)
        if not self.mesh.sequence:
            return (self._collective("all_reduce", made),), ()
        gather = self._collective("all_gather", made, product=True)
        return (self._collective("reduce_scatter", made, product=True),), (gather,)

    # --- operators ------------------------------------------------------------------------------------------

    def _sharding(
        self, layer: int, axis: str, forward: tuple[Collective, ...], backward: tuple[Collective, ...]
    ) -> Sharding:
        mesh = self.mesh
        return Sharding(layer, axis, mesh.devices, mesh.tensor, mesh.between, forward, backward)

    def _rows(self, layer: int) -> Sharding:
        """The bias behind the sum is whole on every device."""
        mesh = self.mesh
        forward, backward = self._behind()
        parts = self._parts(layer, self.transformer.hidden if self.transformer.bias == "all" else 0)
        return Sharding(layer, "row", mesh.devices, parts, mesh.devices, forward, backward)

    def _parts(self, layer: int, whole: int) -> float:
        """How many times a device's parameters of ``layer`` go into all of them, ``whole`` of which everybody
        has.
        """
        held = float(self.model.parameter_bytes[layer]) / self.size
        return held / ((held - whole) / self.mesh.tensor + whole)

    def _inside(self, layer: int, forward: tuple[Collective, ...] = ()) -> Sharding:
        """Between a pair of products everything is divided by heads or columns."""
        collectives = forward if self.mesh.tensor > 1 else ()
        return Sharding(layer, "heads", self.mesh.devices, 1, self.mesh.devices, collectives, ())

    def _core(self, layer: int) -> Sharding:
        """With context parallelism keys and values come from the others, and their gradients go back."""
        mesh, whole = self.mesh, self._inside(layer)
        if mesh.context == 1:
            return whole
        size = float(self.transformer.sequence * self.transformer.cached_width * self.size)
        size /= mesh.tensor * mesh.joined
        gather, scatter = (
            Collective(kind, size, ranks=mesh.context, stride=mesh.tensor, overlap=mesh.exchange != FIRST)
            for kind in ("all_gather", "reduce_scatter")
        )
        steps = mesh.context if mesh.exchange == RING else 1
        forward, backward = (gather,), (gather, scatter)
        return Sharding(layer, "heads", self._attending, 1, mesh.devices, forward, backward, steps)

    @property
    def _attending(self) -> float:
        """How many times the slowest device's attention goes into all of it.

        Of n parts in their order the last attends to n - 1 whole parts and half of its own, of n^2 halves.
        """
        mesh, n = self.mesh, self.mesh.context
        return mesh.devices if mesh.balanced else mesh.tensor * n * n / (2 * n - 1)

    def _experts(self, layer: int, part: str) -> Sharding:
        """Whole experts on each device; copies of tokens travel there and back.

        The devices wait for the one with the fullest expert.
        """
        mesh, mixture = self.mesh, self.transformer.mixture
        assert mixture is not None
        load = mixture.load(mesh.expert, mesh.skew, mesh.capacity)
        parts = mesh.devices / load
        if part in _EXPERTS and mesh.devices > 1:
            return Sharding(layer, EXPERT, parts, mesh.expert, parts, experts=mesh.expert)
        sent = self._sent(mixture, self.transformer.sequence * self.transformer.hidden * self.size / parts)
        return Sharding(layer, "sequence", parts, 1, parts, sent, sent)

    def _sent(self, mixture: Mixture, token: float) -> tuple[Collective, ...]:
        """What a device sends to experts, each ``token`` once or many times.

        To each expert of a token; or to each node that has any, and there to each expert.
        """
        mesh, copies = self.mesh, mixture.chosen * token
        if mesh.expert == 1:
            return ()
        if not mesh.node or mesh.expert <= mesh.node or mesh.expert % mesh.node:
            return (Collective("all_to_all", copies, ranks=mesh.expert),)
        nodes = mesh.expert // mesh.node
        across = token * mixture.nodes_reached(nodes)
        return (
            Collective("all_to_all", across, ranks=nodes, stride=mesh.node),
            Collective("all_to_all", copies, ranks=mesh.node),
        )

    def _embedding(self, layer: int) -> Sharding:
        """Learned positions are whole on every device."""
        mesh = self.mesh
        # A look-up hides nothing.
        forward, backward = _Shardings(self.model, replace(mesh, overlap_products=False))._behind()
        parts = self._parts(layer, self.transformer.positions * self.transformer.hidden)
        return Sharding(layer, "vocabulary", mesh.between, parts, mesh.between, forward, backward)
