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
    """Names of what a line has; ``seconds`` of one unit of its clock, and tokens in a block (0: it tells).

    ``last_is_partial`` where the last block of a prompt is numbered too, full or not.
    """

    arrival: str
    prompt: str
    output: str
    hashes: str
    seconds: float
    block: int
    first_token: str = ""
    last_token: str = ""
    others: tuple[str, ...] = ()
    last_is_partial: bool = False


#: What a line of the lab's own may tell besides, under the names that columns of CSV files have.
OTHERS = ("model", "slo", "session", "priority")
#: Those of them that are numbers.
NUMBERS = frozenset({"slo"})
MOONCAKE = Fields("timestamp", "input_length", "output_length", "hash_ids", 1e-3, 512, last_is_partial=True)
OWN = Fields("arrival", "prompt", "output", "hashes", 1.0, 0, "first_token", "last_token", OTHERS)
#: ``queued_ts`` is when the engine picked a request up, on the clock of all its other times.
VLLM = Fields("queued_ts", "input_toks", "output_toks", "hashes", 1.0, 0, "first_token_ts", "last_token_ts")


@dataclass(frozen=True)
class Row:
    """A line of a file by its number, and what it tells of a request."""

    line: int
    told: Mapping[str, Any]

    def tells(self, column: str) -> bool:
        return self.told.get(column) is not None

    def text(self, column: str, name: str) -> str:
        return str(self.told[column])

    def number(self, column: str, name: str) -> str:
        """A number as text, as other request files have it; text that reads like one is refused."""
        if not self.tells(column):
            raise BadInput(f"{column} is missing", f"{name}, line {self.line}, column {column}", "a number")
        told = self.told[column]
        if not isinstance(told, int | float) or isinstance(told, bool):
            where = f"{name}, line {self.line}, column {column}"
            raise BadInput(f"{told!r:.60} is not a number", where, "a finite number")
        return str(told)

    def error(self, column: str, name: str, expected: str) -> BadInput:
        where = f"{name}, line {self.line}, column {column}"
        return BadInput(f"{column} = {self.told.get(column)!r:.60}", where, expected)


def _recognizes(head: bytes, fields: Fields) -> bool:
    line = head.split(b"\n", 1)[0]
    needed = (fields.arrival, fields.prompt, fields.output)
    return line.lstrip().startswith(b"{") and all(f'"{name}"'.encode() in line for name in needed)


def _read(data: bytes, name: str, options: WorkloadOptions, fields: Fields) -> Reading:
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not 0 < len(lines) <= MOST_LINES:
        raise BadInput(f"{len(lines)} lines", name, f"1 to {MOST_LINES}")
    rows = [Row(number, _object(line, f"{name}, line {number}")) for number, line in lines]
    table = _table(rows, name, fields)
    arrival = table.numbers(fields.arrival) * fields.seconds
    whole = replace(options, limit=None, rate=None, slo_scale=None, extra=None)
    reading = request_reading(table, arrival, fields.prompt, fields.output, whole, _list_assumptions(fields))
    order = np.argsort(arrival, kind="stable").tolist()
    ordered = [rows[row] for row in order]
    trace = _with_blocks(reading.value, ordered, name, fields)
    trace = _with_truth(trace, ordered, float(arrival.min()), name, fields)
    return Reading(apply_options(trace, options), reading.assumed, reading.warnings)


def _list_assumptions(fields: Fields) -> tuple[str, ...]:
    return (f"a block of a prompt has {fields.block} tokens",) if fields.block else ()


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    found = jsonio.loads(line, where)
    if not isinstance(found, dict):
        raise BadInput(f"{found!r:.80} is not an object", where, "a request")
    return found


def _table(rows: Sequence[Row], name: str, fields: Fields) -> Table:
    """The plain columns as text, as every other request file gives them."""
    needed = (fields.arrival, fields.prompt, fields.output)
    others = [other for other in fields.others if any(row.tells(other) for row in rows)]
    texts = {column: tuple(row.number(column, name) for row in rows) for column in needed}
    for other in others:
        tell = Row.number if other in NUMBERS else Row.text
        texts[other] = tuple(tell(row, other, name) if row.tells(other) else "" for row in rows)
    return Table(name, texts, tuple(row.line for row in rows))


def _with_blocks(trace: RequestTrace, rows: Sequence[Row], name: str, fields: Fields) -> RequestTrace:
    """The trace with its blocks, where lines tell them; a prompt without shares none."""
    telling = [row for row in rows if row.tells(fields.hashes)]
    if not telling:
        return trace
    block = fields.block or _block_size(telling, name)
    found = [_blocks(row, block, name, fields) if row.tells(fields.hashes) else [] for row in rows]
    if sum(map(len, found)) > MOST_BLOCKS:
        raise BadInput("too many blocks of prompts", name, f"at most {MOST_BLOCKS}")
    return replace(trace, hashes=Ragged.of(found), block=block)


def _block_size(rows: Sequence[Row], name: str) -> int:
    """Tokens in a block, which are the same in all lines."""
    block = rows[0].told.get("block")
    for row in rows:
        told = row.told.get("block")
        if not isinstance(told, int) or isinstance(told, bool) or not 0 < told < 10**6:
            raise row.error("block", name, "tokens in a block, 1 to 999999")
        if told != block:
            raise row.error("block", name, f"{block}, as line {rows[0].line} has it")
    return int(rows[0].told["block"])


def _with_truth(
    trace: RequestTrace, rows: Sequence[Row], zero: float, name: str, fields: Fields
) -> RequestTrace:
    """The trace with the times that a real server took, where every line tells them."""
    columns = [column for column in (fields.first_token, fields.last_token) if column]
    told = {column: [_moment(row, column, name) for row in rows if row.tells(column)] for column in columns}
    if not columns or any(len(moments) < len(rows) for moments in told.values()):
        return trace
    first, last = (np.array(told[column]) * fields.seconds - zero for column in columns)
    return replace(trace, measured=Measured(first, last))


def _moment(row: Row, column: str, name: str) -> float:
    told = row.told[column]
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 1e15:
        return float(told)
    raise row.error(column, name, "seconds, 0 to 1e+15")


def _blocks(row: Row, block: int, name: str, fields: Fields) -> list[int]:
    told = row.told[fields.hashes]
    if not isinstance(told, list) or not all(map(_is_hash, told)):
        raise row.error(fields.hashes, name, "a list of whole numbers")
    prompt = int(row.told[fields.prompt])
    most = -(-prompt // block) if fields.last_is_partial else prompt // block
    if len(told) > most:
        said = f"{len(told)} blocks of a prompt of {prompt} tokens"
        where = f"{name}, line {row.line}, column {fields.hashes}"
        of = f"{block}, the last one begun" if fields.last_is_partial else f"{block}"
        raise BadInput(said, where, f"at most its {most} full blocks of {of}")
    return list(told)


def _is_hash(told: Any) -> bool:
    return isinstance(told, int) and not isinstance(told, bool) and abs(told) < LARGEST


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
