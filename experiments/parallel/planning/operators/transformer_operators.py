"""The operators of a transformer that is known by its sizes, as loops over named dimensions.

They are the rows of ``workloads.transformer_rows``, whether a layer graph has one for each operator or for
each block. Of a block each row takes the part of the time that it has of the FLOPs: element-wise work counts
with the products.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from experiments.core.units import DTYPE_BYTES
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_rows import Row, Rows, Ways

TOKENS = ("batch", "sequence")
KINDS = {"linear": "einsum", "norm": "normalization", "residual": "elementwise", "loss": "reduce"}
KINDS |= {"attention": "attention", "embedding": "embedding", "head_norm": "normalization"}
#: Of a linear row by the end of its name: the dimensions that it sums and makes.
LINEAR = {
    "qkv": (("hidden",), "heads"),
    "query": (("hidden",), "heads"),
    "key": (("hidden",), "heads"),
    "value": (("hidden",), "heads"),
    "projection": (("heads", "head_size"), "hidden"),
    "expand": (("hidden",), "feedforward"),
    "up": (("hidden",), "feedforward"),
    "contract": (("feedforward",), "hidden"),
    "logits": (("hidden",), "vocabulary"),
}


def transformer_operators(graph: LayerGraph) -> tuple[Operator, ...]:
    """For the batch of ``graph``, whose ``transformer`` is known."""
    model, facts = graph.transformer, graph.facts
    assert model is not None
    size = DTYPE_BYTES[str(facts["dtype"])]
    rows = Rows(model, size, Ways.of(facts)).all()
    place = {row.name: number for number, row in enumerate(rows)}
    layers = {name: number for number, name in enumerate(graph.layer)}
    of_row = [layers.get(row.name, layers.get(".".join(row.name.split(".")[:2]), 0)) for row in rows]
    shares = _shares(rows, of_row)
    parameters = itertools.count(1)
    return tuple(
        _operator(
            model,
            graph.batch,
            size,
            row,
            of_row[n],
            shares[n],
            place,
            0 if row.kind == "embedding" or (row.name == "logits" and model.tied) else next(parameters),
        )
        for n, row in enumerate(rows)
    )


def _shares(rows: Sequence[Row], of_row: Sequence[int]) -> list[float]:
    """By FLOPs, or equally in a layer without."""
    whole: dict[int, float] = {}
    count: dict[int, int] = {}
    for row, layer in zip(rows, of_row, strict=True):
        whole[layer] = whole.get(layer, 0.0) + row.work.forward_flops
        count[layer] = count.get(layer, 0) + 1
    return [
        row.work.forward_flops / whole[layer] if whole[layer] else 1.0 / count[layer]
        for row, layer in zip(rows, of_row, strict=True)
    ]


def _operator(
    model: Transformer,
    batch: int,
    size: int,
    row: Row,
    layer: int,
    share: float,
    place: Mapping[str, int],
    parameter: int,
) -> Operator:
    what = row.name.rpartition(".")[2]
    sizes, output, read, weight = _loops(model, batch, row, what)
    reads = [place.get(name, -1) for name in row.reads]
    if row.kind == "attention":
        reads = (reads * 3)[:3] if len(reads) == 1 else [reads[0], *reads[-2:]]
    whole = batch * row.output  # of operands: as large as the result where nothing else is said
    operands = [
        Operand(dims, _bytes(sizes, dims, size), source) for dims, source in zip(read, reads, strict=False)
    ]
    operands += [Operand(read[0], 0.0)] if not reads else []
    if row.parameters or row.name == "logits":
        count = row.parameters or model.vocabulary * model.hidden
        operands.append(Operand(weight, float(count * size), parameter=parameter))
    return Operator(
        name=row.name,
        kind=KINDS.get(row.kind, "elementwise"),
        layer=layer,
        sizes=tuple(sizes.items()),
        output=output,
        operands=tuple(operands),
        output_bytes=whole,
        stash_bytes=batch * row.kept,
        flops=batch * row.work.forward_flops,
        share=share,
        statistics=("hidden",) if row.kind == "norm" else (),
        whole=("keys", "head_size") if row.kind == "attention" else (),
    )


def _bytes(sizes: Mapping[str, int], dims: Sequence[str], size: int) -> float:
    found = float(size)
    for name in dims:
        found *= sizes[name]
    return found


def _loops(
    model: Transformer, batch: int, row: Row, what: str
) -> tuple[dict[str, int], tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Sizes of the loops, the result's, each operand's and the weight's dimensions."""
    size = {
        "batch": batch,
        "sequence": model.sequence,
        "hidden": model.hidden,
        "feedforward": model.feedforward * (2 if model.fused_gate and what == "expand" else 1),
        "vocabulary": model.vocabulary,
        "head_size": model.head_size,
        "heads": model.kv_heads if row.kind == "attention" or what == "projection" else model.attention_width,
        "keys": model.sequence,
    }
    output: tuple[str, ...]
    read: list[tuple[str, ...]]
    weight: tuple[str, ...]
    if row.kind == "linear":
        summed, made = LINEAR[what]
        output, read, weight = (*TOKENS, made), [(*TOKENS, *summed)], (made, *summed)
    elif row.kind == "attention":
        output, weight = (*TOKENS, "heads", "head_size"), ()
        read = [(*TOKENS, "heads"), ("batch", "keys", "heads"), ("batch", "keys", "heads")]
    elif row.kind == "embedding":
        output, read, weight = (*TOKENS, "hidden"), [TOKENS], ("vocabulary", "hidden")
    elif row.kind == "loss":
        output, read, weight = TOKENS, [(*TOKENS, "vocabulary")], ()
    elif row.kind == "head_norm":
        output, read, weight = (*TOKENS, "heads"), [(*TOKENS, "heads")], ()
    else:
        made = {"activation": "feedforward", "rotary": "heads"}.get(row.kind, "hidden")
        output, read, weight = (*TOKENS, made), [(*TOKENS, made)] * max(1, len(row.reads)), (made,)
    names = dict.fromkeys(
        (*output, *itertools.chain(*read), *(weight if row.parameters or what == "logits" else ()))
    )
    return {name: size[name] for name in names}, output, read, weight
