"""``calculon-model``: the sheet of a GPT-like transformer as the analytic model Calculon (SC'23) reads it.

``{"hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks"}``: every block is attention
of ``attn_heads`` heads of ``attn_size`` each (their product need not be ``hidden``) and a two-matrix MLP. The
sheet has no vocabulary, so embedding and logits are not counted, as in Calculon itself, unless the option
``vocabulary`` gives one.

FLOPs count the matrix products: a multiply and an add for each of their terms, twice that in the backward
pass (Korthikanti et al., MLSys'23, section 5, appendix A). Activations kept are those of section 4.1 there,
with dropout: for 16-bit values and ``feedforward = 4 hidden`` they are s b h (34 + 5 a s / h) bytes. Times
are left to the device's kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import PLANNED_ATTENTION, WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads.samples import check_documents, refuse_images
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import ATTENTION_RATES, transformer_layers

#: Field of the sheet: its largest value.
LIMITS = {
    "hidden": 2**20,
    "feedforward": 2**22,
    "seq_size": 2**22,
    "attn_heads": 65536,
    "attn_size": 65536,
    "num_blocks": 10_000,
}
LARGEST_FILE = 2**16


def _recognizes(head: bytes, name: str) -> bool:
    return head.lstrip()[:1] == b"{" and b'"attn_heads"' in head and b'"num_blocks"' in head


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    if len(data) > LARGEST_FILE:
        raise BadInput(f"{len(data)} bytes", name, f"a model sheet of at most {LARGEST_FILE} bytes")
    content = jsonio.loads(data, name)
    if not isinstance(content, dict):
        raise BadInput(f"{content!r:.80} is not an object", name, "a JSON object")
    sizes = {field: _size(content.get(field), field, name) for field in LIMITS}
    unknown = sorted(set(content) - set(LIMITS))
    model = _model(sizes, PurePath(name).stem, options)
    graph = transformer_layers(
        model,
        batch=options.batch or 1,
        dtype=options.dtype or "float16",
        optimizer=options.optimizer or "adam",
        kernels="fused" if options.kernels == "auto" else options.kernels,
        fused_attention=options.attention in ("flash", *PLANNED_ATTENTION),
        attention_rate=ATTENTION_RATES.get(options.attention, 1.0),
        copies_keys=options.attention == "flash-copied",
    )
    assumed = [
        f"{graph.facts['dtype']} values, dropout in every block, activations kept as MLSys'23 counts them"
    ]
    if not model.vocabulary:
        assumed.insert(0, "the sheet has no vocabulary: embedding and logits are not counted")
    warnings = [f"unknown fields are ignored: {', '.join(unknown)[:200]}"] if unknown else []
    if model.attention_width != model.hidden:
        warnings.append(
            f"{model.heads} heads of {model.head_size} are {model.attention_width} wide, not {model.hidden}"
        )
    return Reading(graph, tuple(assumed), tuple(warnings))


def _size(value: Any, field: str, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LIMITS[field]:
        raise BadInput(f"{field} = {value!r:.80}", name, f"a whole number from 1 to {LIMITS[field]}")
    return value


def _model(sizes: Mapping[str, int], name: str, options: WorkloadOptions) -> Transformer:
    """Learned positions and a tied output layer where the user gives a vocabulary."""
    sequence = options.sequence or sizes["seq_size"]
    refuse_images(name, options)
    check_documents(sequence, options)
    return Transformer(
        name,
        layers=sizes["num_blocks"],
        hidden=sizes["hidden"],
        heads=sizes["attn_heads"],
        head_size=sizes["attn_size"],
        feedforward=sizes["feedforward"],
        sequence=sequence,
        kv_heads=sizes["attn_heads"],
        vocabulary=options.vocabulary or 0,
        positions=sequence if options.vocabulary else 0,
        dropout=True,
        document=options.document,
    )


READER = Reader(
    "calculon-model", "layers", "a transformer's sizes as Calculon reads them", _recognizes, _read
)
