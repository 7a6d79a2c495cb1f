"""The events of a PyTorch profiler trace (Chrome trace format) that say something about a step.

Times are microseconds in the file and seconds here. Of the many categories only these matter: ``cpu_op`` and
``user_annotation`` (calls, nested by time within a thread), ``python_function`` (of modules only), the
device's ``kernel``, ``gpu_memcpy`` and ``gpu_memset``, the ``cuda_runtime`` calls that launched them, and
``[memory]`` instants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers.event_stream import EventStream

MOST_BYTES = 2**50
#: Longest believable moment: 2**53 microseconds, 285 years.
MOST_MICROSECONDS = 2.0**53
MOST_NESTED = 300
LONGEST_NAME = 400
CALLS = ("cpu_op", "user_annotation")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
MODULE = "nn.Module: "
TOLD = (*CALLS, *ON_DEVICE, *LAUNCHES)


@dataclass(eq=False)
class Call:
    """A ``cpu_op`` or annotation; ``children`` are the calls inside it, in order of time."""

    name: str
    category: str
    thread: str
    start: float
    end: float
    args: Mapping[str, Any]
    children: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Kernel:
    """Work on a device: ``external`` and ``correlation`` lead to the call that launched it (-1: not told)."""

    name: str
    start: float
    seconds: float
    device: int
    stream: int
    external: int
    correlation: int


@dataclass(frozen=True)
class Launch:
    thread: str
    start: float


@dataclass(frozen=True)
class MemoryEvent:
    """``bytes`` > 0: allocated at ``address``, < 0: freed; ``total`` is the allocator's count after it.

    ``device`` is (type, index); type 0 is the CPU.
    """

    thread: str
    time: float
    address: int
    bytes: int
    total: int
    device: tuple[int, int]


@dataclass(frozen=True)
class Trace:
    """The calls of a trace.

    ``roots`` are the outermost calls of each thread; ``modules`` the module calls (name, thread, start, end).
    """

    roots: Mapping[str, Sequence[Call]]
    kernels: Sequence[Kernel]
    launches: Mapping[int, Launch]
    memory: Sequence[MemoryEvent]
    modules: Sequence[Call]
    header: Mapping[str, Any]


def load(data: bytes, name: str) -> Trace:
    """Parse and check the whole file. ``BadInput`` names the event."""
    events = EventStream(data, name)
    kept, origin = _of_a_step(events, name)
    calls: list[Call] = []
    modules: list[Call] = []
    kernels: list[Kernel] = []
    launches: dict[int, Launch] = {}
    memory: list[MemoryEvent] = []
    for index, event in kept:
        where = f"{name}: event {index}"
        category = event.get("cat")
        if event.get("ph") == "X" and category in CALLS:
            calls.append(_call(event, origin, where))
        elif event.get("ph") == "X" and category in ON_DEVICE:
            kernels.append(_kernel(event, origin, where))
        elif event.get("ph") == "X" and category in LAUNCHES:
            launches[id_of(event, "correlation", where)] = Launch(
                thread_of(event), _moment(event, origin, where)
            )
        elif category == "python_function":
            modules.append(_call(event, origin, where))
        elif event.get("name") == "[memory]":
            memory.append(_memory(event, origin, where))
    memory.sort(key=lambda event: event.time)
    kernels.sort(key=lambda kernel: (kernel.start, kernel.device, kernel.stream))
    modules.sort(key=lambda call: (call.start, -call.end))
    try:
        roots = nest(calls)
    except BadInput as error:
        raise BadInput(error.what, f"{name}: {error.where}", error.expected) from None
    return Trace(roots, kernels, launches, memory, modules, events.header)


def nest(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Outermost calls by thread; each call becomes a child of the innermost one that is open when it starts.

    ``BadInput`` where calls are nested beyond belief: what walks them afterwards does so by recursion.
    """
    roots: dict[str, list[Call]] = {}
    stacks: dict[str, list[Call]] = {}
    for call in sorted(calls, key=lambda call: (call.start, -call.end)):
        stack = stacks.setdefault(call.thread, [])
        while stack and stack[-1].end <= call.start:
            stack.pop()
        if stack:
            call.end = min(
                call.end, stack[-1].end
            )  # written with three decimals: a child may seem to end later
            stack[-1].children.append(call)
        else:
            roots.setdefault(call.thread, []).append(call)
        stack.append(call)
        if len(stack) > MOST_NESTED:
            raise BadInput(
                f"calls nested more than {MOST_NESTED} deep", f"call {call.name!r:.80}", "a real trace"
            )
    return roots


def microseconds_of(event: Mapping[str, Any], field_name: str, where: str) -> float:
    value = event.get(field_name, 0 if field_name == "dur" else None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{field_name} = {value!r:.80}", where, "microseconds")
    if not math.isfinite(value) or not 0 <= value <= MOST_MICROSECONDS:
        raise BadInput(f"{field_name} = {value!r:.80}", where, f"0 to {MOST_MICROSECONDS:g} microseconds")
    return value


def _of_a_step(events: EventStream, name: str) -> tuple[list[tuple[int, dict[str, Any]]], float]:
    """The events that say something about a step, with their places, and the earliest moment of all in
    microseconds. Times count from it: a clock's own are too large to tell nanoseconds.
    """
    kept, origin = [], math.inf
    for index, event in enumerate(events):
        if not isinstance(event, dict):
            raise BadInput(f"{event!r:.80} is not an object", f"{name}: event {index}", "a trace event")
        told = event.get("ts")
        if isinstance(told, int | float) and 0 <= told < origin:
            origin = told
        if _says_something(event):
            kept.append((index, event))
    return kept, origin if origin <= MOST_MICROSECONDS else 0.0


def _says_something(event: Mapping[str, Any]) -> bool:
    if event.get("cat") == "python_function":
        return str(event.get("name")).startswith(MODULE)
    return event.get("cat") in TOLD or event.get("name") == "[memory]"


def _moment(event: Mapping[str, Any], origin: float, where: str) -> float:
    """Seconds from ``origin``."""
    return (microseconds_of(event, "ts", where) - origin) / 1e6


def thread_of(event: Mapping[str, Any]) -> str:
    return f"{event.get('pid')}/{event.get('tid')}"


def args_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def id_of(event: Mapping[str, Any], field_name: str, where: str) -> int:
    value = args_of(event).get(field_name, -1)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{field_name} = {value!r:.80}", where, "an integer")
    return value


def _call(event: Mapping[str, Any], origin: float, where: str) -> Call:
    start = _moment(event, origin, where)
    end = start + microseconds_of(event, "dur", where) / 1e6
    name = event.get("name")
    if not isinstance(name, str):
        raise BadInput(f"name = {name!r:.80}", where, "a text")
    return Call(name[:LONGEST_NAME], str(event.get("cat")), thread_of(event), start, end, args_of(event))


def _kernel(event: Mapping[str, Any], origin: float, where: str) -> Kernel:
    return Kernel(
        str(event.get("name"))[:LONGEST_NAME],
        _moment(event, origin, where),
        microseconds_of(event, "dur", where) / 1e6,
        id_of(event, "device", where),
        id_of(event, "stream", where),
        id_of(event, "External id", where),
        id_of(event, "correlation", where),
    )


def _memory(event: Mapping[str, Any], origin: float, where: str) -> MemoryEvent:
    size, total = id_of(event, "Bytes", where), args_of(event).get("Total Allocated", 0)
    if not -MOST_BYTES <= size <= MOST_BYTES or not isinstance(total, int):
        raise BadInput(f"Bytes = {size}, Total Allocated = {total!r:.40}", where, "a plausible allocation")
    device = (id_of(event, "Device Type", where), id_of(event, "Device Id", where))
    time = _moment(event, origin, where)
    return MemoryEvent(thread_of(event), time, id_of(event, "Addr", where), size, total, device)
