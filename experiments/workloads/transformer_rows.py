"""The operators of a transformer, one after another: products, traffic, parameters, and what backward needs
of them.

What an operator *keeps* are the inputs that its backward pass reads (Korthikanti et al., MLSys'23, section
4.1); an input that two operators read is kept by the first. With 16-bit values, dropout and an attention
matrix in memory the operators of a block keep s b h (34 + 5 a s / h) bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from experiments.workloads.kernels import Product, Row, Work
from experiments.workloads.mixture_rows import ROUTER, LatentRows, MixtureRows
from experiments.workloads.transformer import Transformer


@dataclass(frozen=True)
class ElementwiseTraffic:
    """Bytes that element-wise kernels read and write for each 2-byte value, (forward, backward), by purpose.

    ``dispatch`` and ``combine`` are for each value of the copies of tokens that experts take; ``softmax`` is
    for each entry of the attention matrix with its mask and dropout, ``loss`` for each logit,
    ``gradient`` for each parameter and micro-batch; ``gate_kept`` are values kept for each value of a gated
    MLP, ``loss_kept`` bytes for each logit. Products of blocks are of type ``product``, whose operands are
    brought to it by ``quantize`` bytes for each value of an input.
    """

    norm: tuple[float, float]
    rms: tuple[float, float]
    residual: tuple[float, float]
    dropout: tuple[float, float]
    activation: tuple[float, float]
    gate: tuple[float, float]
    gate_kept: int
    rotary: tuple[float, float]
    dispatch: tuple[float, float]
    combine: tuple[float, float]
    softmax: tuple[float, float]
    loss: tuple[float, float]
    gradient: float = 6.0
    loss_kept: float = 4.0
    product: str = ""
    quantize: tuple[float, float] = (0.0, 0.0)


#: How a model's element-wise work is divided into kernels. Counts of reads and writes, not measurements.
#: ``fused`` are Megatron-LM's hand-fused kernels (bias with GeLU, bias with dropout and residual, scale with
#: mask and softmax), ``eager`` one kernel for each operation of PyTorch, ``compiled`` what torch.compile
#: makes of the chains of a block; as in torchtitan the loss stays eager: float32 probabilities, and at the
#: turn two gradients of their size next to them.
TRAFFIC = {
    "fused": ElementwiseTraffic(
        norm=(4, 10),
        rms=(4, 10),
        residual=(6, 8),
        dropout=(1, 5),
        activation=(4, 8),
        gate=(6, 12),
        gate_kept=2,
        rotary=(4, 4),
        dispatch=(4, 4),
        combine=(2, 4),
        softmax=(4, 6),
        loss=(30, 14),
    ),
    "eager": ElementwiseTraffic(
        norm=(4, 10),
        rms=(32, 50),
        residual=(6, 6),
        dropout=(5, 5),
        activation=(4, 6),
        gate=(10, 18),
        gate_kept=3,
        rotary=(22, 22),
        dispatch=(4, 4),
        combine=(6, 10),
        softmax=(12, 12),
        loss=(18, 20),
        loss_kept=12.0,
    ),
    "compiled": ElementwiseTraffic(
        norm=(4, 8),
        rms=(4, 8),
        residual=(4, 4),
        dropout=(1, 3),
        activation=(4, 6),
        gate=(6, 10),
        gate_kept=2,
        rotary=(4, 4),
        dispatch=(4, 4),
        combine=(2, 4),
        softmax=(4, 6),
        loss=(18, 20),
        loss_kept=12.0,
    ),
}
#: The compiled kernels, with products of blocks in float8 (scaled by tensor; operands are read and cast
#: before each).
TRAFFIC["float8"] = replace(TRAFFIC["compiled"], product="float8", quantize=(5.0, 8.0))
#: Reading and writing context and gradients once more to bring heads together and apart, for each value of
#: them.
RELAYOUT = (4.0, 4.0)


@dataclass(frozen=True)
class Ways:
    """How a model's operators are carried out.

    ``kernels`` of ``TRAFFIC``; ``fused_attention`` never stores the attention matrix and reaches
    ``attention_rate`` of the device's rate for it; the loss has ``loss_chunks`` parts (0: whole), and unless
    it ``keeps_logits`` those of a part are made, used and forgotten. ``loss`` is one of ``WHOLE_LOSSES`` or
    the one that comes with the kernels. Where attention ``copies_keys`` and values next to one another, its
    query is still a part of what one product made for all three, so that all of that stays (nanotron,
    models/llama.py: a view keeps its storage).
    """

    kernels: str
    fused_attention: bool
    attention_rate: float = 1.0
    loss_chunks: int = 0
    keeps_logits: bool = True
    loss: str = "whole"
    copies_keys: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What a graph says of them: the first two, and of the others what is unusual."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Ways:
        return cls(**{field.name: facts[field.name] for field in fields(cls) if field.name in facts})


@dataclass(frozen=True)
class WholeLoss:
    """A loss of all logits at once: bytes moved for each logit (forward, backward), bytes kept of it."""

    traffic: tuple[float, float]
    kept: float


#: Ways of a loss of all logits other than the kernels' own. ``compiled``: torch.compile makes one kernel of
#: each pass, which read 16-bit logits and write their gradient; nothing in float32 is stored. ``divided``:
#: DTensor's loss_parallel on eager kernels (torch/distributed/tensor/parallel/loss.py): where logits are
#: divided by vocabulary, the backward pass has log probabilities, zeros with the targets, their sum with the
#: probabilities and its product with the gradient at once, each float32.
WHOLE_LOSSES = {"compiled": WholeLoss((4, 4), 4.0), "divided": WholeLoss((38, 38), 16.0)}


class Rows:
    """Rows of ``model`` with values of ``size`` bytes, carried out in such ``ways``."""

    def __init__(self, model: Transformer, size: int, ways: Ways) -> None:
        self.model, self.size, self.ways = model, size, ways
        self.traffic = TRAFFIC[ways.kernels]

    def all(self) -> list[Row]:
        """Embedding, blocks, and the end; a model without vocabulary has blocks only."""
        model, found, last = self.model, [], ""
        if model.vocabulary:
            found.append(self._embedding())
            last = "embedding"
            if model.embedding_norm:
                found.append(self._norm("embedding_norm", last))
                last = "embedding_norm"
        for number in range(model.layers):
            found += self._block(number, last)
            last = found[-1].name
        return [*found, *self._end(last)] if model.vocabulary else found

    # --- pieces ---------------------------------------------------------------------------------------------

    def values(self, width: float) -> float:
        """Bytes of ``width`` values for each token of a sample."""
        return float(self.model.sequence * width * self.size)

    def stream(self, pair: tuple[float, float], width: float) -> Work:
        """Element-wise work on ``width`` values for each token."""
        values = self.model.sequence * width * self.size / 2
        return Work(
            forward_traffic=pair[0] * values,
            backward_traffic=pair[1] * values,
            launches=max(1, round(pair[0] / 6)),
        )

    def linear(
        self, name: str, inputs: int, outputs: int, parameters: int, reads: str, kept: float | None = None
    ) -> Row:
        product = Product(self.model.sequence, inputs, outputs)
        cast = self.cast(inputs, name)
        work = replace(cast, products=(product,), gradient_traffic=self.traffic.gradient * parameters)
        keeps = self.values(inputs) if kept is None else kept
        return Row(name, "linear", work, parameters, self.values(outputs), keeps, (reads,))

    def cast(self, inputs: int, name: str) -> Work:
        """What brings a block's input to the products' type."""
        if not self.traffic.product or name == "logits" or name.endswith(ROUTER):
            return Work()
        return replace(self.stream(self.traffic.quantize, inputs), dtype=self.traffic.product)

    def _norm(self, name: str, reads: str) -> Row:
        model = self.model
        pair = self.traffic.rms if model.rms else self.traffic.norm
        width = self.values(model.hidden)
        return Row(
            name, "norm", self.stream(pair, model.hidden), model.norm_parameters, width, width, (reads,)
        )

    def _head_norm(self, name: str, width: int, reads: str) -> Row:
        """Of queries or keys, head by head with one scale."""
        return self.norm_of(name, "head_norm", width, self.model.head_size, reads)

    def norm_of(self, name: str, kind: str, width: int, scales: int, reads: str) -> Row:
        """An RMS norm of ``width`` values of each token."""
        values = self.values(width)
        return Row(name, kind, self.stream(self.traffic.rms, width), scales, values, values, (reads,))

    def gate(self, name: str, width: float, reads: tuple[str, ...]) -> Row:
        """The activation of a gated MLP of inner ``width`` values of each token."""
        values = self.values(width)
        work = self.stream(self.traffic.gate, width)
        return Row(name, "activation", work, 0, values, self.traffic.gate_kept * values, reads)

    def _residual(self, name: str, reads: tuple[str, str]) -> Row:
        """Added to the block's input, with dropout before it where the model has any."""
        model, pair = self.model, self.traffic.residual
        if model.dropout:
            pair = (pair[0] + self.traffic.dropout[0], pair[1] + self.traffic.dropout[1])
        mask = float(model.sequence * model.hidden) if model.dropout else 0.0
        work = self.stream(pair, model.hidden)
        return Row(name, "residual", work, 0, self.values(model.hidden), mask, reads)

    # --- a block --------------------------------------------------------------------------------------------

    def _block(self, number: int, reads: str) -> Iterator[Row]:
        model, name = self.model, f"blocks.{number}"
        yield self._norm(f"{name}.norm1", reads)
        yield from LatentRows(self).attention(name) if model.latent else self._attention(name)
        width = model.context_width
        parameters = model.linear_parameters(width, model.hidden)
        yield self.linear(f"{name}.projection", width, model.hidden, parameters, f"{name}.attention")
        # The first block of a model without embedding reads nothing that is a row.
        yield self._residual(f"{name}.residual1", (f"{name}.projection", reads))
        yield self._norm(f"{name}.norm2", f"{name}.residual1")
        mlp = list(MixtureRows(self).mlp(name) if model.has_experts(number) else self._mlp(name))
        yield from mlp
        yield self._residual(f"{name}.residual2", (mlp[-1].name, f"{name}.residual1"))

    def _attention(self, name: str) -> Iterator[Row]:
        model, before = self.model, f"{name}.norm1"
        q, kv = model.attention_width, model.kv_width
        parameters = [model.linear_parameters(model.hidden, width, "qkv") for width in (q, kv, kv)]
        reads: tuple[str, ...] = (f"{name}.qkv",)
        if model.fused_qkv:
            yield self.linear(f"{name}.qkv", model.hidden, q + 2 * kv, sum(parameters), before)
        else:
            for part, width, count in zip(("query", "key", "value"), (q, kv, kv), parameters, strict=True):
                kept = None if part == "query" else 0.0
                yield self.linear(f"{name}.{part}", model.hidden, width, count, before, kept)
            reads = (f"{name}.query", f"{name}.key", f"{name}.value")
        if model.head_norms:
            query, key, value = (reads * 3)[:3]
            yield self._head_norm(f"{name}.query_norm", q, query)
            yield self._head_norm(f"{name}.key_norm", kv, key)
            reads = (f"{name}.query_norm", f"{name}.key_norm", value)
        if model.rotary:
            rotary = self.stream(self.traffic.rotary, q + kv)
            yield Row(f"{name}.rotary", "rotary", rotary, 0, self.values(q + kv), 0.0, reads)
            reads = (f"{name}.rotary", reads[-1])
        yield self.core(f"{name}.attention", reads)

    def core(self, name: str, reads: tuple[str, ...]) -> Row:
        """Return attention's core: queries by keys, softmax, dropout, by values.

        It keeps query, key and value, and the matrix if it stores it.
        """
        model, s, d = self.model, self.model.sequence, self.model.head_size
        span, parts = model.span, model.heads * (s // model.span)
        scores = Product(span, d, span, parts, weight=False)
        context = Product(span, span, model.value_size, parts, weight=False)
        kept = self.values(model.attention_width + model.cached_width)
        output = self.values(model.context_width)
        if self.ways.copies_keys:
            kept += self.values(model.cached_width)
        if self.ways.fused_attention:
            sums = 4.0 * model.heads * s
            work = Work((scores, context), fused=True, causal=True, rate=self.ways.attention_rate)
            return Row(name, "attention", work, 0, output, kept + sums, reads)
        pairs = float(model.heads) * s * span
        matrices = (2 * self.size + 1) if model.dropout else self.size
        work = Work((scores, context), *self._attention_traffic(pairs), launches=3)
        return Row(name, "attention", work, 0, output, kept + matrices * pairs, reads)

    def _attention_traffic(self, pairs: float) -> tuple[float, float]:
        per_pair = self.traffic.softmax
        if self.model.dropout:
            per_pair = (per_pair[0] + 5, per_pair[1] + 5)
        values = self.model.sequence * self.model.context_width
        forward, backward = (
            (a * pairs + b * values) * self.size / 2 for a, b in zip(per_pair, RELAYOUT, strict=True)
        )
        return forward, backward

    def _mlp(self, name: str) -> Iterator[Row]:
        model, before = self.model, f"{name}.norm2"
        inner = model.linear_parameters(model.hidden, model.feedforward)
        products = 2 if model.fused_gate else 1
        width = products * model.feedforward
        yield self.linear(f"{name}.expand", model.hidden, width, products * inner, before)
        reads: tuple[str, ...] = (f"{name}.expand",)
        if model.gated and not model.fused_gate:
            yield self.linear(f"{name}.up", model.hidden, model.feedforward, inner, before, 0.0)
            reads = (f"{name}.expand", f"{name}.up")
        if model.gated:
            yield self.gate(f"{name}.activation", model.feedforward, reads)
        else:
            values = self.values(model.feedforward)
            work = self.stream(self.traffic.activation, model.feedforward)
            yield Row(f"{name}.activation", "activation", work, 0, values, values, reads)
        outer = model.linear_parameters(model.feedforward, model.hidden)
        yield self.linear(f"{name}.contract", model.feedforward, model.hidden, outer, f"{name}.activation")

    # --- the ends -------------------------------------------------------------------------------------------

    def _embedding(self) -> Row:
        """A look-up, learned positions and dropout; its gradient is scattered into the table."""
        model = self.model
        parameters = (model.vocabulary + model.positions) * model.hidden
        mask = float(model.sequence * model.hidden) if model.dropout else 0.0
        work = self.stream((6.0, 8.0), model.hidden)
        return Row("embedding", "embedding", work, parameters, self.values(model.hidden), mask, ())

    def _end(self, reads: str) -> Iterator[Row]:
        """Final norm, logits and cross entropy; the loss keeps probabilities in float32."""
        model = self.model
        last = reads
        if model.final_norm:
            yield self._norm("norm", reads)
            last = "norm"
        parameters = 0 if model.tied else model.vocabulary * model.hidden
        yield self.linear("logits", model.hidden, model.vocabulary, parameters, last)
        logits = float(model.sequence * model.vocabulary)
        whole = WHOLE_LOSSES.get(self.ways.loss)
        traffic = whole.traffic if whole else self.traffic.loss
        work = self.stream(traffic, model.vocabulary * 2 / self.size)
        kept = self._kept_by_loss * logits
        yield Row("loss", "loss", work, 0, 4.0 * model.sequence, kept, ("logits",))

    @property
    def _kept_by_loss(self) -> float:
        """Bytes for each logit: float32 values of all or of a part, and where it has parts the logits."""
        chunks = self.ways.loss_chunks
        if self.ways.loss in WHOLE_LOSSES:
            return WHOLE_LOSSES[self.ways.loss].kept
        if not chunks:
            return self.traffic.loss_kept
        return self.traffic.loss_kept / chunks + (self.size if self.ways.keeps_logits else 0)
