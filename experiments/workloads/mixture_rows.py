"""Operators of a block's mixture of experts, and of latent attention, one after another.

A token's copies, one for each expert that takes it, are brought together by expert (dispatch), pass the
experts as grouped products (one launch for all experts of a device), and are weighed and added up (combine);
experts that every token passes run beside them. What is kept is what backward passes read: the copies, the
inner values, and what experts made, of which the weights' gradients are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.workloads.kernels import Product, Row, Work

if TYPE_CHECKING:
    from experiments.workloads.transformer_rows import Rows

#: How the router's name ends.
ROUTER = ".router"
#: Bytes for each 2-byte value of the sum over a token's copies, beside the copies; of adding what shared
#: experts made; of weighing that; of copies that bring heads' queries and keys together.
SUM, ADDED, WEIGHED, TOGETHER = (2.0, 2.0), (6.0, 0.0), (4.0, 6.0), (4.0, 4.0)
#: Bytes of an index, and of a float32 weight.
INDEX, WEIGHT = 8.0, 4.0


def _both(one: Work, other: Work) -> Work:
    """Element-wise work of two kinds on one row."""
    return Work(
        forward_traffic=one.forward_traffic + other.forward_traffic,
        backward_traffic=one.backward_traffic + other.backward_traffic,
        launches=one.launches + other.launches,
    )


class MixtureRows:
    """What stands in place of a block's MLP; ``rows`` has the pieces."""

    def __init__(self, rows: Rows) -> None:
        assert rows.model.mixture is not None
        self.rows, self.model, self.mixture = rows, rows.model, rows.model.mixture

    def mlp(self, name: str) -> Iterator[Row]:
        """The last row is what the residual reads."""
        yield self._router(name)
        yield from self._experts(name)
        if self.mixture.shared:
            yield from self._shared(name)

    def _router(self, name: str) -> Row:
        """A score for each expert; it keeps the input, which dispatch reads too, and float32 scores."""
        model, experts = self.model, self.mixture.experts
        row = self.rows.linear(
            name + ROUTER, model.hidden, experts, model.hidden * experts, f"{name}.norm2", None
        )
        return replace(row, kept=row.kept + WEIGHT * experts * model.sequence)

    def _experts(self, name: str) -> Iterator[Row]:
        rows, model, mixture = self.rows, self.model, self.mixture
        hidden, inner = mixture.chosen * model.hidden, mixture.chosen * mixture.width
        places = float(mixture.chosen * model.sequence)
        copied = rows.stream(rows.traffic.dispatch, hidden)
        reads = (name + ROUTER, f"{name}.norm2")
        yield Row(f"{name}.dispatch", "dispatch", copied, 0, rows.values(hidden), INDEX * places, reads)
        yield self._grouped(f"{name}.experts_expand", model.hidden, 2 * mixture.width, f"{name}.dispatch")
        yield rows.gate(f"{name}.experts_activation", inner, (f"{name}.experts_expand",))
        yield self._grouped(
            f"{name}.experts_contract", mixture.width, model.hidden, f"{name}.experts_activation"
        )
        summed = _both(rows.stream(rows.traffic.combine, hidden), rows.stream(SUM, model.hidden))
        kept = rows.values(hidden) + WEIGHT * places
        reads = (f"{name}.experts_contract", name + ROUTER)
        yield Row(f"{name}.combine", "combine", summed, 0, rows.values(model.hidden), kept, reads)

    def _grouped(self, name: str, inputs: int, outputs: int, reads: str) -> Row:
        """A product of each expert's tokens with its own weight."""
        rows, mixture = self.rows, self.mixture
        parameters = mixture.experts * inputs * outputs
        tokens = self.model.sequence * mixture.chosen / mixture.experts
        work = replace(
            rows.cast(mixture.chosen * inputs, name),
            products=(Product(tokens, inputs, outputs, mixture.experts),),
            gradient_traffic=rows.traffic.gradient * parameters,
        )
        made, kept = (rows.values(mixture.chosen * width) for width in (outputs, inputs))
        return Row(name, "experts", work, parameters, made, kept, (reads,))

    def _shared(self, name: str) -> Iterator[Row]:
        rows, hidden, width, before = self.rows, self.model.hidden, self.mixture.shared, f"{name}.norm2"
        for part in ("shared_expand", "shared_up"):
            yield rows.linear(f"{name}.{part}", hidden, width, hidden * width, before, 0.0)
        yield rows.gate(f"{name}.shared_activation", width, (f"{name}.shared_expand", f"{name}.shared_up"))
        last = f"{name}.shared_contract"
        yield rows.linear(last, width, hidden, width * hidden, f"{name}.shared_activation")
        if self.mixture.shared_gate:
            yield self._shared_gate(f"{name}.shared_gate", last)
            last = f"{name}.shared_gate"
        work, reads = rows.stream(ADDED, hidden), (f"{name}.combine", last)
        yield Row(f"{name}.experts_sum", "residual", work, 0, rows.values(hidden), 0.0, reads)

    def _shared_gate(self, name: str, made: str) -> Row:
        """Weighs what shared experts ``made``, and keeps it."""
        hidden = self.model.hidden
        row = self.rows.linear(name, hidden, 1, hidden, made, self.rows.values(hidden + 1))
        weighed = self.rows.stream(WEIGHED, hidden)
        work = replace(weighed, products=row.work.products, gradient_traffic=row.work.gradient_traffic)
        return replace(row, kind="shared_gate", work=work, output=self.rows.values(hidden))


class LatentRows:
    """Attention whose queries, keys and values come from short vectors; ``rows`` has the pieces."""

    def __init__(self, rows: Rows) -> None:
        assert rows.model.latent is not None
        self.rows, self.model, self.latent = rows, rows.model, rows.model.latent

    def attention(self, name: str) -> Iterator[Row]:
        model, latent = self.model, self.latent
        yield from self._queries(name)
        short = f"{name}.latent_key_value"
        width = latent.key_value + latent.rotary
        yield self.rows.linear(short, model.hidden, width, model.hidden * width, f"{name}.norm1", 0.0)
        yield from self._widened(short, latent.key_value, f"{name}.key_value", latent.plain + latent.value)
        yield self._rotary(name, (f"{name}.query", short, f"{name}.key_value"))
        yield self.rows.core(f"{name}.attention", (f"{name}.rotary", f"{name}.key_value"))

    def _queries(self, name: str) -> Iterator[Row]:
        rows, model, latent, before = self.rows, self.model, self.latent, f"{name}.norm1"
        if not latent.query:
            width = model.attention_width
            yield rows.linear(f"{name}.query", model.hidden, width, model.hidden * width, before)
            return
        short = f"{name}.latent_query"
        yield rows.linear(short, model.hidden, latent.query, model.hidden * latent.query, before)
        yield from self._widened(short, latent.query, f"{name}.query", latent.key)

    def _widened(self, short: str, size: int, name: str, each: int) -> Iterator[Row]:
        """A short vector normalized, then ``each`` values of every head made of it."""
        width = self.model.heads * each
        yield self.rows.norm_of(f"{short}_norm", "latent_norm", size, size, short)
        yield self.rows.linear(name, size, width, size * width, f"{short}_norm")

    def _rotary(self, name: str, reads: tuple[str, ...]) -> Row:
        """Turns a part of each query and the part of keys that heads share; both are put together."""
        heads, latent, rows = self.model.heads, self.latent, self.rows
        turned = rows.stream(rows.traffic.rotary, (heads + 1) * latent.rotary)
        width = 2 * heads * latent.key
        work = _both(turned, rows.stream(TOGETHER, width))
        return Row(f"{name}.rotary", "rotary", work, 0, rows.values(width), 0.0, reads)
