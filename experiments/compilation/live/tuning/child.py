"""Runs compiled schedules in a process of its own.

A schedule that crashes or hangs takes only this process with it.

Started by file name with NumPy alone (no torch: it starts in a tenth of a second). One JSON object a line in
and out: ``{"task": FOLDER}`` loads operands, reference and error bound; ``{"library": FILE, "repeats": N,
"least": SECONDS, "alone": BOOL}`` answers ``{"repeats": [seconds of a call, ...]}`` or ``{"wrong": what}``.
Nothing is timed before it is right. A schedule that is ``alone`` (on one thread) is timed by what that thread
used of a processor.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: What of the operands may be left in the caches between two calls is what torch's own kernel finds there
#: too.
WARM_UP = 1

Clock = Callable[[], float]


def main() -> None:
    data: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "task" in asked:
            folder = Path(asked["task"])
            data = {name: np.load(folder / f"{name}.npy") for name in ("in0", "in1", "reference", "bound")}
            answer: dict[str, Any] = {"ready": True}
        else:
            clock = time.thread_time if asked["alone"] else time.perf_counter
            answer = measure(data, asked["library"], asked["repeats"], asked["least"], clock)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def measure(data: dict[str, Any], file: str, repeats: int, least: float, clock: Clock) -> dict[str, Any]:
    """Return the seconds of one call, ``repeats`` times over at least ``least`` seconds each.

    Or where it is wrong.
    """
    library = ctypes.CDLL(file)
    try:
        return _measure_kernel(library.kernel, data, repeats, least, clock)
    finally:
        library.release()


def _measure_kernel(
    kernel: Callable[..., Any], data: dict[str, Any], repeats: int, least: float, clock: Clock
) -> dict[str, Any]:
    out = np.full(data["reference"].shape, np.nan, dtype=np.float32)
    arguments = [ctypes.c_void_p(array.ctypes.data) for array in (data["in0"], data["in1"], out)]
    seconds = 0.0
    for _ in range(1 + WARM_UP):  # twice: what a first call leaves behind must not change the second
        seconds = time_calls(kernel, arguments, 1, clock)
    wrong = difference(out, data["reference"], data["bound"])
    if wrong:
        return {"wrong": wrong}
    calls = max(1, int(least / max(seconds, 1e-9)))
    return {"repeats": [time_calls(kernel, arguments, calls, clock) for _ in range(repeats)]}


def time_calls(kernel: Callable[..., Any], arguments: list[Any], calls: int, clock: Clock) -> float:
    started = clock()
    for _ in range(calls):
        kernel(*arguments)
    return (clock() - started) / calls


def difference(out: np.ndarray, reference: np.ndarray, bound: np.ndarray) -> str:
    """Return the first element that is further from the reference than rounding explains.

    Empty where there is none.
    """
    bad = ~(np.abs(out - reference) <= bound)
    if not bad.any():
        return ""
    place = np.unravel_index(int(np.argmax(bad)), bad.shape)
    position = [int(part) for part in place]
    return f"element {position} is {out[place]:.8g} instead of {reference[place]:.8g}"


if __name__ == "__main__":
    main()
