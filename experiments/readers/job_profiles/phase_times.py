"""Tables of prompt and token times by prompt and batch sizes (``perf_model.csv`` of splitwise-sim)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.layer_times import Curve
from experiments.workloads.profiles.phase_times import Measurand, PassTimes, PhaseTimes

COLUMNS = (
    *("model", "hardware", "tensor_parallel", "prompt_size"),
    *("batch_size", "prompt_time", "token_time"),
)
MILLISECOND = 1e-3
#: Bytes of a file in which its columns are looked for.
HEAD = 4096


def _recognizes(members: Sequence[Member]) -> bool:
    return any(_has_columns(member) for member in members)


def _has_columns(member: Member) -> bool:
    head = member.data[:HEAD].decode(errors="replace").split("\n")[0]
    return set(COLUMNS) <= {name.strip() for name in head.split(",")}


def _read(members: Sequence[Member], name: str) -> PhaseTimes:
    found = [member for member in members if _has_columns(member)]
    if len(found) > 1:
        raise BadInput(f"has {len(found)} tables of prompt and token times", name, "one")
    table = read_table(found[0].data, found[0].name, COLUMNS)
    sizes, batches = table.counts("prompt_size").tolist(), table.counts("batch_size").tolist()
    prompts, tokens = table.numbers("prompt_time").tolist(), table.numbers("token_time").tolist()
    degrees = table.counts("tensor_parallel").tolist()
    by_tokens: dict[Measurand, dict[int, list[float]]] = {}
    by_batch: dict[Measurand, dict[int, list[float]]] = {}
    for row, (size, batch, prompt, token) in enumerate(zip(sizes, batches, prompts, tokens, strict=True)):
        key = Measurand(table.columns["model"][row], table.columns["hardware"][row], degrees[row])
        by_tokens.setdefault(key, {}).setdefault(size * batch, []).append(prompt)
        by_batch.setdefault(key, {}).setdefault(batch, []).append(token)
    return PhaseTimes(
        name, {key: PassTimes(_curve(rows), _curve(by_batch[key])) for key, rows in by_tokens.items()}
    )


def _curve(rows: dict[int, list[float]]) -> Curve:
    """The median of each point's measurements, given in ms."""
    points = sorted(rows)
    return Curve(tuple(map(float, points)), tuple(median(rows[point]) * MILLISECOND for point in points))


PROFILES = ProfileReader(
    "phase-times",
    "prompt and token times by prompt and batch size (perf_model.csv)",
    _recognizes,
    _read,
)
