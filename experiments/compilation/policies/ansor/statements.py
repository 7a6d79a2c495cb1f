"""Features of store statements for Ansor's cost model (appendix B).

The sum, and the write-back of a local tile.

A program's score is the sum of its statements' scores, so each statement is a row of its own. Counts, extents
and bytes are in log2(1 + x).
"""

from __future__ import annotations

import numpy as np

from experiments.compilation.interface.tuning import Contraction, Digits, Floats, ScheduleSpace
from experiments.compilation.planning.tuning.features import knob_features
from experiments.compilation.planning.tuning.nests import FLOAT_BYTES, LINE_BYTES, Nests, nests_of

#: Depths at which the arithmetic intensity is read, from the innermost loop to the whole nest.
INTENSITY_POINTS = 10


def statement_rows(
    nest: Contraction | None, space: ScheduleSpace, digits: Digits
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return rows of all programs' statements, and whose each row is.

    Without a loop nest a program is one row of its knobs.
    """
    programs = np.arange(len(digits))
    if nest is None:
        return knob_features(space, digits), programs
    nests = nests_of(nest, space, digits)
    stored = nests.local > 0
    rows = np.concatenate([_sum(nests), _write_back(nests)[stored]])
    return rows, np.concatenate([programs, programs[stored]])


def _sum(nests: Nests) -> Floats:
    """Return the multiply-add: runs once for every point of the nest."""
    return np.concatenate(
        [
            _log(np.stack([2.0 * nests.inside[:, 0], np.zeros(len(nests))], axis=1)),
            _annotation(nests),
            *(_buffer(nests, place) for place in range(len(nests.touched))),
            _intensity(nests),
            _around(nests),
        ],
        axis=1,
    )


def _write_back(nests: Nests) -> Floats:
    """Return the copy of the local tile to the output: no arithmetic, the output's accesses only."""
    row = _sum(nests)
    width = _buffer(nests, 0).shape[1]
    inputs = slice(
        2 + _annotation(nests).shape[1] + width, 2 + _annotation(nests).shape[1] + len(nests.touched) * width
    )
    row[:, inputs] = 0.0
    row[:, 0] = 0.0
    row[:, 1] = np.log2(1.0 + nests.touched[0][:, 0])
    return row


def _log(values: Floats) -> Floats:
    return np.log2(1.0 + values)


def _annotation(nests: Nests) -> Floats:
    """Lengths of what is vectorized, unrolled and parallel, the limits asked for, and where sums are kept."""
    parallel = np.where(nests.parallel_loops, nests.extent, 1.0).prod(axis=1)
    unrolled = np.where(nests.inside <= nests.unroll[:, None], nests.inside, 1.0).max(axis=1)
    plain = np.stack([nests.lanes, unrolled, nests.unroll, parallel, nests.parallel], axis=1)
    kept = np.stack([nests.local, nests.rfactor], axis=1)
    return np.concatenate([_log(plain), kept], axis=1)


def _buffer(nests: Nests, place: int) -> Floats:
    """Bytes, different bytes and lines of one buffer.

    How it is reused: by which loop, how far apart, how often.
    """
    touched, stride, inside = nests.touched[place], nests.stride[place], nests.inside
    reusing = (stride == 0) & (nests.extent > 1)
    found = reusing.any(axis=1)
    last = nests.extent.shape[1] - 1 - np.argmax(reusing[:, ::-1], axis=1)
    rows = np.arange(len(nests))
    within = np.minimum(last + 1, nests.extent.shape[1] - 1)
    distance = np.where(found, inside[rows, within], 0.0)
    distance_bytes = np.where(found, sum(part[rows, within] for part in nests.touched) * FLOAT_BYTES, 0.0)
    count = np.where(found, nests.extent[rows, last], 1.0)
    innermost = stride[:, -1]
    lines = touched * np.minimum(np.maximum(innermost[:, None], 1.0) * FLOAT_BYTES / LINE_BYTES, 1.0)
    columns = [
        inside[:, 0] * FLOAT_BYTES, touched[:, 0] * FLOAT_BYTES, lines[:, 0], touched[:, 0] / inside[:, 0],
        distance, distance_bytes, count, innermost, np.where(found, last, -1.0) + 1.0,
    ]  # fmt: skip
    return _log(np.stack(columns, axis=1))


def _intensity(nests: Nests) -> Floats:
    """Operations for each byte touched, at ten depths."""
    bytes_ = nests.touched.sum(axis=0) * FLOAT_BYTES
    depth = np.linspace(nests.extent.shape[1] - 1, 0, INTENSITY_POINTS).round().astype(int)
    return _log((2.0 * nests.inside / bytes_)[:, depth])


def _around(nests: Nests) -> Floats:
    """Return the local tile's bytes, and per group of loops how often it is begun and what it touches."""
    loops = nests.extent.shape[1]
    spatial = int((~nests.reduce).sum()) // 4
    sums = (loops - 4 * spatial) // 2
    begins = np.array([0, spatial, 2 * spatial, 2 * spatial + sums, 3 * spatial + sums, loops - spatial])
    tile = np.where(nests.local == 1, nests.touched[0][:, begins[1]], nests.touched[0][:, begins[2]])
    tile = np.where(nests.local > 0, tile * FLOAT_BYTES, 0.0)
    footprints = nests.touched[:, :, begins].transpose(1, 0, 2).reshape(len(nests), -1) * FLOAT_BYTES
    return _log(np.concatenate([tile[:, None], nests.outside[:, begins], nests.extent, footprints], axis=1))
