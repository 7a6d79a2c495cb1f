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
from experiments.workloads.kernels import Row
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_rows import Rows, Ways

TOKENS = ("batch", "sequence")
KINDS = {"linear": "einsum", "norm": "normalization", "residual": "elementwise", "loss": "reduce"}
KINDS |= {"attention": "attention", "embedding": "embedding", "head_norm": "normalization"}
KINDS |= {"latent_norm": "normalization", "experts": "einsum", "dispatch": "dispatch"}
KINDS |= {"combine": "combination"}
#: What devices may divide of an expert's rows, whatever their samples.
EXPERTS = ("experts", "capacity")
#: What a normalization needs a small result of.
STATISTICS = {"norm": ("hidden",), "latent_norm": ("latent",)}
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
    "router": (("hidden",), "experts"),
    "shared_expand": (("hidden",), "feedforward"),
    "shared_up": (("hidden",), "feedforward"),
    "shared_contract": (("feedforward",), "hidden"),
    "latent_query": (("hidden",), "latent"),
    "latent_key_value": (("hidden",), "latent"),
    "key_value": (("latent",), "heads"),
}
#: Of a mixture's rows by the end of their names: the result's dimensions, each operand's and the weight's.
MIXED: Mapping[str, tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]] = {
    "dispatch": ((*EXPERTS, "hidden"), [("capacity", "", "experts"), ("capacity", "", "hidden")], ()),
    "experts_expand": (
        (*EXPERTS, "feedforward"),
        [(*EXPERTS, "hidden")],
        ("experts", "hidden", "feedforward"),
    ),
    "experts_activation": ((*EXPERTS, "feedforward"), [(*EXPERTS, "feedforward")], ()),
    "experts_contract": (
        (*EXPERTS, "hidden"),
        [(*EXPERTS, "feedforward")],
        ("experts", "feedforward", "hidden"),
    ),
    "combine": ((*TOKENS, "hidden"), [("experts", "batch", "hidden"), (*TOKENS, "experts")], ()),
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
        statistics=STATISTICS.get(row.kind, ()),
        whole=("keys", "head_size") if row.kind == "attention" else (),
    )


def _bytes(sizes: Mapping[str, int], dims: Sequence[str], size: int) -> float:
    found = float(size)
    for name in filter(None, dims):
        found *= sizes[name]
    return found


def _loops(
    model: Transformer, batch: int, row: Row, what: str
) -> tuple[dict[str, int], tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Sizes of the loops, the result's, each operand's and the weight's dimensions."""
    size = _sizes(model, batch, row, what)
    output: tuple[str, ...]
    read: list[tuple[str, ...]]
    weight: tuple[str, ...]
    if what in MIXED:
        output, read, weight = MIXED[what]
    elif row.kind == "linear":
        summed, made = LINEAR[what]
        summed = ("latent",) if what == "query" and model.latent and model.latent.query else summed
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
    elif row.kind == "latent_norm":
        output, read, weight = (*TOKENS, "latent"), [(*TOKENS, "latent")], ("latent",)
    elif row.kind == "rotary" and model.latent:
        output, read, weight = (*TOKENS, "heads"), [(*TOKENS, "heads"), (*TOKENS, ""), (*TOKENS, "heads")], ()
    else:
        made = {"activation": "feedforward", "rotary": "heads"}.get(row.kind, "hidden")
        output, read, weight = (*TOKENS, made), [(*TOKENS, made)] * max(1, len(row.reads)), (made,)
    names = dict.fromkeys(
        filter(
            None, (*output, *itertools.chain(*read), *(weight if row.parameters or what == "logits" else ()))
        )
    )
    return {name: size[name] for name in names}, output, read, weight


def _sizes(model: Transformer, batch: int, row: Row, what: str) -> dict[str, int]:
    """What each dimension is in this row."""
    mixture, latent = model.mixture, model.latent
    size = {
        "batch": batch,
        "sequence": model.sequence,
        "hidden": model.hidden,
        "feedforward": model.feedforward * (2 if model.fused_gate and what == "expand" else 1),
        "vocabulary": model.vocabulary,
        "head_size": model.value_size,
        "heads": model.kv_heads if row.kind == "attention" or what == "projection" else model.attention_width,
        "keys": model.sequence,
    }
    if latent:
        size["latent"] = _latent_size(model, what)
        size["heads"] = model.heads * (latent.plain + latent.value) if what == "key_value" else size["heads"]
    if mixture:
        size |= {"experts": mixture.experts, **_expert_sizes(model, batch, what)}
    return size


def _latent_size(model: Transformer, what: str) -> int:
    """Of the short vector that a row of latent attention makes, norms or reads."""
    assert model.latent is not None
    if what in ("latent_query", "latent_query_norm", "query"):
        return model.latent.query
    return model.latent.key_value + (model.latent.rotary if what == "latent_key_value" else 0)


def _expert_sizes(model: Transformer, batch: int, what: str) -> dict[str, int]:
    """Rows of an expert at an even load, and the inner width of a mixture's rows."""
    mixture = model.mixture
    assert mixture is not None
    found = {"capacity": max(1, batch * model.sequence * mixture.chosen // mixture.experts)}
    if what.startswith("shared_"):
        return {**found, "feedforward": mixture.shared}
    if what.startswith("experts_"):
        return {**found, "feedforward": mixture.width * (2 if what == "experts_expand" else 1)}
    return found
