"""``g10``: kernel-level training steps in the JSON form of the G10 artifact (MICRO'23): ops in order with
microseconds.

``{"model", "batch", "ops_cols": ["name", "us", "inputs", "outputs"], "ops": [...], "tensors_cols": ["bytes",
"is_global"], "tensors": {"0": [bytes, 0 or 1], ...}}``. Sizes stay as written: G10 rounds to pages of 4,096
bytes, of which every published size is a multiple already.

The file has no layer types and no kinds of tensors; both follow from op names and uses:
- up to and including ``makeLoss`` is forward, later ops are backward, those named ``*Apply_Grad*`` the
  optimizer;
- a global tensor is a parameter; a local one that ``*Apply_Grad*`` reads is a gradient; one that is used up
  to the loss and after it is an activation; all others are temporaries. A local that is read before anything
  writes it (token ids, the batch) is allocated at its first use.

``options.extra`` names the artifact's side file, else one of the same name in a folder ``g10_extra`` beside
the file or beside its folder is taken: exact cycles at 1.2 GHz replace the rounded microseconds, page-fault
times and the order of touches go into ``facts["g10"]`` for the artifact's own rules. Without one, a time is
the nearest whole cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import g10_doubts
from experiments.readers.base import Reader, Reading
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Floats, Ops, Step, Tensors

OPS_COLUMNS = ["name", "us", "inputs", "outputs"]
TENSORS_COLUMNS = ["bytes", "is_global"]
LOSS = "makeLoss"
SIDE_FOLDER = "g10_extra"
UPDATE = "Apply_Grad"
CYCLES_PER_SECOND = 1.2e9
MOST_OPS, MOST_TENSORS = 1_000_000, 1_000_000
MOST_BYTES = 2**50
MOST_MICROSECONDS = 1e12


def _recognizes(head: bytes, name: str) -> bool:
    return b'"ops_cols"' in head and head.lstrip()[:1] == b"{"


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    content = _object(jsonio.loads(data, name), name)
    for field, columns in (("ops_cols", OPS_COLUMNS), ("tensors_cols", TENSORS_COLUMNS)):
        if content.get(field) != columns:
            raise BadInput(f"{field} = {content.get(field)!r:.80}", name, str(columns))
    sizes, is_global = _tensors(content.get("tensors"), name)
    ops = _list(content.get("ops"), f"{name}: ops")
    if not 0 < len(ops) <= MOST_OPS:
        raise BadInput(f"{len(ops)} ops", name, f"1 to {MOST_OPS}")
    names, seconds = _names_and_times(ops, name)
    inputs, outputs = (_ids(ops, column, len(sizes), name) for column in (2, 3))
    facts: dict[str, Any] = {"model": str(content.get("model", "")), "batch": _batch(content, name)}
    assumed = [
        "forward ends with makeLoss, tensors are typed by their uses",
        "locals are free after their last use",
    ]
    if options.extra is not None:
        extra = _extra(options.extra, len(ops))
        seconds = np.array(extra.pop("cycles")) / CYCLES_PER_SECOND
        facts["g10"] = extra
        assumed.append(f"exact cycles, fault times and touch order are those of {_short_path(options.extra)}")
    step = _step(name, names, seconds, sizes, is_global, inputs, outputs, facts)
    return Reading(step, tuple(assumed), _warnings(step, names))


def _beside(path: Path) -> Path | None:
    """The side file of the same name in a folder ``g10_extra`` beside ``path`` or beside its folder."""
    places = (path.parent / SIDE_FOLDER / path.name, path.parent.parent / SIDE_FOLDER / path.name)
    return next((place for place in places if place != path and place.is_file()), None)


def _short_path(path: str) -> str:
    """The file and its folder: enough to know it, no path of this host."""
    return "/".join(Path(path).parts[-2:])


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.80} is not an object", where, "a JSON object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadInput(f"{value!r:.80} is not a list", where, "a JSON list")
    return value


def _integer(value: Any, low: int, high: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadInput(f"{value!r:.80}", where, f"an integer from {low} to {high}")
    return value


def _batch(content: dict[str, Any], name: str) -> int:
    return _integer(content.get("batch"), 1, 2**31, f"{name}: batch")


def _tensors(rows: Any, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    rows = _object(rows, f"{name}: tensors")
    if len(rows) > MOST_TENSORS or list(rows) != [str(i) for i in range(len(rows))]:
        raise BadInput(
            "tensor ids are not 0, 1, 2, ... in order", f"{name}: tensors", f"at most {MOST_TENSORS}"
        )
    pairs = [_pair(row, f"{name}: tensor {key}") for key, row in rows.items()]
    return np.array([size for size, _ in pairs], np.int64), np.array([kept for _, kept in pairs], np.bool_)


def _pair(row: Any, where: str) -> tuple[int, int]:
    if not isinstance(row, list) or len(row) != 2:
        raise BadInput(f"{row!r:.80}", where, "[bytes, is_global]")
    return _integer(row[0], 0, MOST_BYTES, f"{where}: bytes"), _integer(row[1], 0, 1, f"{where}: is_global")


def _names_and_times(ops: Sequence[Any], name: str) -> tuple[tuple[str, ...], Floats]:
    for index, op in enumerate(ops):
        where = f"{name}: op {index}"
        if not isinstance(op, list) or len(op) != len(OPS_COLUMNS) or not isinstance(op[0], str):
            raise BadInput(f"{op!r:.80}", where, str(OPS_COLUMNS))
        if not isinstance(op[1], int | float) or not 0 <= op[1] <= MOST_MICROSECONDS:
            raise BadInput(f"us = {op[1]!r:.80}", where, f"0 to {MOST_MICROSECONDS:g} microseconds")
    return tuple(op[0] for op in ops), _whole_cycles(ops)


def _whole_cycles(ops: Sequence[Any]) -> Floats:
    """Seconds; the artifact counts cycles, of which the microseconds written are a rounded form."""
    microseconds = np.array([op[1] for op in ops], np.float64)
    return np.round(microseconds * CYCLES_PER_SECOND / 1e6) / CYCLES_PER_SECOND


def _ids(ops: Sequence[Any], column: int, count: int, name: str) -> Ragged:
    rows = []
    for index, op in enumerate(ops):
        where = f"{name}: op {index}: {OPS_COLUMNS[column]}"
        rows.append([_integer(value, 0, count - 1, where) for value in _list(op[column], where)])
    return Ragged.of(rows)


def _extra(path: str, count: int) -> dict[str, Any]:
    from experiments.readers import archive

    source = Path(path)
    try:
        data, name = archive.unpack(source.read_bytes(), source.name)
    except OSError as error:
        raise BadInput(error.strerror or str(error), source.name, "a readable side file") from None
    content = _object(jsonio.loads(data, name), name)
    kept: dict[str, Any] = {}
    for field in ("cycles", "input_fault_cycles", "fault_cycles"):
        column = _list(content.get(field), f"{name}: {field}")
        if len(column) != count:
            raise BadInput(f"{field} has {len(column)} rows", name, f"one for each of {count} ops")
        kept[field] = [_integer(value, 0, 2**53, f"{name}: {field}") for value in column]
    kept["touch_overrides"] = _object(content.get("touch_overrides"), f"{name}: touch_overrides")
    return kept


def _phases(names: tuple[str, ...]) -> npt.NDArray[np.int8]:
    loss = names.index(LOSS) if LOSS in names else len(names) - 1
    forward, backward, optimizer = (PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))
    later = [optimizer if UPDATE in name else backward for name in names]
    return np.array([forward] * (loss + 1) + later[loss + 1 :], np.int8)


def _kinds(step: Step, is_global: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """Kinds by use, for a ``step`` whose kinds are not set yet."""
    forward = np.append(np.nonzero(step.ops.phase == PHASES.index("forward"))[0], 0)
    loss = forward.max()
    updates = [index for index, name in enumerate(step.ops.name) if UPDATE in name]
    read_by_update = np.zeros(len(is_global), np.bool_)
    for index in updates:
        read_by_update[step.inputs[index]] = True
    spans_loss = (step.first_use <= loss) & (step.last_use > loss)
    choices = [KINDS.index(kind) for kind in ("parameter", "gradient", "activation")]
    conditions = [is_global, read_by_update & (step.first_use > loss), spans_loss]
    return np.select(conditions, choices, KINDS.index("temporary")).astype(np.int8)


def _step(
    name: str,
    names: tuple[str, ...],
    seconds: Floats,
    sizes: npt.NDArray[np.int64],
    is_global: npt.NDArray[np.bool_],
    inputs: Ragged,
    outputs: Ragged,
    facts: dict[str, Any],
) -> Step:
    count, tensors = len(names), len(sizes)
    ops = Ops(
        name=names,
        target=names,
        module=("",) * count,
        phase=_phases(names),
        seconds=seconds,
        flops=np.full(count, np.nan),
        bytes_moved=_bytes_touched(sizes, inputs) + _bytes_touched(sizes, outputs),
        workspace=np.zeros(count, np.int64),
        dtype=("float32",) * count,
        view=np.zeros(count, np.bool_),
        random=np.array(["Dropout_Forward" in name for name in names]),
    )
    table = Tensors(
        name=tuple(f"tensor {index}" for index in range(tensors)),
        bytes=sizes,
        dtype=("float32",) * tensors,
        shape=((),) * tensors,
        kind=np.full(tensors, KINDS.index("temporary"), np.int8),
        sparsity=np.full(tensors, np.nan),
    )
    title = f"{facts['model'] or name} batch {facts['batch']}"
    untyped = Step(title, ops, table, inputs, outputs, "trace", "G10 artifact, A100 profile", facts)
    kinds = _kinds(untyped, is_global)
    typed = Tensors(table.name, table.bytes, table.dtype, table.shape, kinds, table.sparsity)
    return Step(title, ops, typed, inputs, outputs, "trace", untyped.timed_on, facts)


def _bytes_touched(sizes: npt.NDArray[np.int64], rows: Ragged) -> Floats:
    totals = np.concatenate(([0], np.cumsum(sizes[rows.values])))
    return (totals[rows.offsets[1:]] - totals[rows.offsets[:-1]]).astype(np.float64)


def _warnings(step: Step, names: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    if names.count(LOSS) != 1:
        found.append(f"{names.count(LOSS)} ops named {LOSS}: the end of the forward pass is a guess")
    idle = int((step.last_use < 0).sum())
    if idle:
        found.append(f"{idle} tensors are never used")
    return (*found, *g10_doubts.utilization(step))


def _doubts(path: Path, reading: Reading) -> tuple[str, ...]:
    return g10_doubts.beside(path, reading.value, READER)


READER = Reader(
    "g10",
    "step",
    "kernel-level training step of the G10 artifact",
    _recognizes,
    _read,
    side_file=_beside,
    doubts=_doubts,
)
