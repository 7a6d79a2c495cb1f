"""Request traces with one JSON object a line, which tell the blocks of their prompts.

``mooncake`` is as Mooncake published them, ``vllm-bench`` as runs of vLLM are recorded,
``requests-jsonl`` the lab's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.csv_table import Table
from experiments.readers.request_rows import apply_options, request_reading
from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import Measured, RequestTrace

MOST_LINES = 2_000_000
#: Blocks of all prompts together.
MOST_BLOCKS = 50_000_000
LARGEST = 2**62


@dataclass(frozen=True)
class Fields:
    """Names of what a line has; ``seconds`` of one unit of its clock, and tokens in a block (0: it tells)."""

    arrival: str
    prompt: str
    output: str
    hashes: str
    seconds: float
    block: int
    first_token: str = ""
    last_token: str = ""
    others: tuple[str, ...] = ()


#: What a line of the lab's own may tell besides, under the names that columns of CSV files have.
OTHERS = ("model", "slo", "session", "priority")
MOONCAKE = Fields("timestamp", "input_length", "output_length", "hash_ids", 1e-3, 512)
OWN = Fields("arrival", "prompt", "output", "hashes", 1.0, 0, "first_token", "last_token", OTHERS)
#: ``queued_ts`` is when the engine picked a request up, on the clock of all its other times.
VLLM = Fields("queued_ts", "input_toks", "output_toks", "hashes", 1.0, 0, "first_token_ts", "last_token_ts")


def _recognizes(head: bytes, fields: Fields) -> bool:
    line = head.split(b"\n", 1)[0]
    needed = (fields.arrival, fields.prompt, fields.output)
    return line.lstrip().startswith(b"{") and all(f'"{name}"'.encode() in line for name in needed)


def _read(data: bytes, name: str, options: WorkloadOptions, fields: Fields) -> Reading:
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not 0 < len(lines) <= MOST_LINES:
        raise BadInput(f"{len(lines)} lines", name, f"1 to {MOST_LINES}")
    rows = [_row(line, f"{name}, line {number}") for number, line in enumerate(lines, 1)]
    table = _table(rows, name, fields)
    arrival = table.numbers(fields.arrival) * fields.seconds
    whole = replace(options, limit=None, rate=None, extra=None)
    reading = request_reading(table, arrival, fields.prompt, fields.output, whole, _list_assumptions(fields))
    order = np.argsort(arrival, kind="stable").tolist()
    ordered = [rows[row] for row in order]
    trace = _with_blocks(reading.value, ordered, name, fields)
    trace = _with_truth(trace, ordered, float(arrival.min()), name, fields)
    return Reading(apply_options(trace, options), reading.assumed, reading.warnings)


def _list_assumptions(fields: Fields) -> tuple[str, ...]:
    return (f"a block of a prompt has {fields.block} tokens",) if fields.block else ()


def _row(line: bytes, where: str) -> Mapping[str, Any]:
    found = jsonio.loads(line, where)
    if not isinstance(found, dict):
        raise BadInput(f"{found!r:.80} is not an object", where, "a request")
    return found


def _table(rows: Sequence[Mapping[str, Any]], name: str, fields: Fields) -> Table:
    """The plain columns as text, as every other request file gives them."""
    others = [name for name in fields.others if any(row.get(name) is not None for row in rows)]
    columns = (fields.arrival, fields.prompt, fields.output, *others)
    texts = {column: tuple(_text_of(row.get(column)) for row in rows) for column in columns}
    return Table(name, texts, tuple(range(1, len(rows) + 1)))


def _text_of(told: Any) -> str:
    return "" if told is None else str(told)


def _with_blocks(
    trace: RequestTrace, rows: Sequence[Mapping[str, Any]], name: str, fields: Fields
) -> RequestTrace:
    """The trace with its blocks, where every line tells them."""
    if any(fields.hashes not in row for row in rows):
        return trace
    block = fields.block or rows[0].get("block")
    if not isinstance(block, int) or isinstance(block, bool) or not 0 < block < 10**6:
        raise BadInput(f"block = {block!r:.40}", name, "tokens in a block")
    found = [_blocks(row[fields.hashes], name) for row in rows]
    for row, (request, blocks) in enumerate(zip(rows, found, strict=True), 1):
        if fields.block == 0 and len(blocks) > int(request[fields.prompt]) // block:
            full = int(request[fields.prompt]) // block
            raise BadInput(
                f"{len(blocks)} blocks of a prompt of {request[fields.prompt]} tokens",
                f"{name}, request {row}",
                f"at most its {full} full blocks of {block}",
            )
    if sum(map(len, found)) > MOST_BLOCKS:
        raise BadInput("too many blocks of prompts", name, f"at most {MOST_BLOCKS}")
    return replace(trace, hashes=Ragged.of(found), block=block)


def _with_truth(
    trace: RequestTrace, rows: Sequence[Mapping[str, Any]], zero: float, name: str, fields: Fields
) -> RequestTrace:
    """The trace with the times that a real server took, where every line tells them."""
    columns = (fields.first_token, fields.last_token)
    if not fields.first_token or any(not set(columns) <= set(row) for row in rows):
        return trace
    first, last = (
        np.array([_moment(row[column], column, name) for row in rows]) * fields.seconds - zero
        for column in columns
    )
    return replace(trace, measured=Measured(first, last))


def _moment(told: Any, column: str, name: str) -> float:
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 1e15:
        return float(told)
    raise BadInput(f"{column} = {told!r:.40}", name, "seconds")


def _blocks(told: Any, name: str) -> list[int]:
    whole = isinstance(told, list) and all(isinstance(one, int) and abs(one) < LARGEST for one in told)
    if not whole:
        raise BadInput(f"blocks {told!r:.60}", name, "a list of whole numbers")
    return list(told)


READER = (
    Reader(
        "mooncake",
        "requests",
        "Mooncake's request traces: timestamp (ms), input_length, output_length, hash_ids (JSON lines)",
        lambda head, name: _recognizes(head, MOONCAKE),
        lambda data, name, options: _read(data, name, options, MOONCAKE),
    ),
    Reader(
        "vllm-bench",
        "requests",
        "recorded runs of vLLM: queued_ts, input_toks, output_toks, first_token_ts ... (JSON lines)",
        lambda head, name: _recognizes(head, VLLM),
        lambda data, name, options: _read(data, name, options, VLLM),
    ),
    Reader(
        "requests-jsonl",
        "requests",
        "requests as JSON lines: arrival (s), prompt, output; optional slo, block, hashes, first_token ...",
        lambda head, name: _recognizes(head, OWN),
        lambda data, name, options: _read(data, name, options, OWN),
    ),
)
