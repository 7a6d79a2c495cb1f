"""Features of loop nests for AutoTVM's model.

Per loop (itervar), and touch against reuse (curve), which any two tasks share (AutoTVM, section 4 and
appendix A).
"""

from __future__ import annotations

import numpy as np

from experiments.compilation.interface.tuning import Floats
from experiments.compilation.planning.tuning.nests import Nests

#: Reuses at which the curve is read, as powers of two.
CURVE_POINTS = np.linspace(0.0, 24.0, 20)


def itervar(nests: Nests) -> Floats:
    """Return TVM's features of each loop, in log2.

    Length, annotations, products outside and inside, and per buffer touch, reuse and stride.
    """
    loops = nests.extent.shape[1]
    parallel = nests.parallel_loops.astype(float)
    vector = np.zeros_like(nests.extent)
    vector[:, -1] = nests.lanes
    unrolled = (nests.inside <= nests.unroll[:, None]).astype(float)
    kind = np.broadcast_to(nests.reduce.astype(float), nests.extent.shape)
    columns = [np.log2(nests.extent), parallel, vector, unrolled, kind]
    columns += [np.log2(nests.outside), np.log2(nests.inside)]
    for touched, stride in zip(nests.touched, nests.stride, strict=True):
        columns += [np.log2(touched), np.log2(nests.inside / touched), np.log2(1.0 + stride)]
    return np.stack(columns, axis=2).reshape(len(nests), loops * len(columns))


def curve(nests: Nests) -> Floats:
    """For each buffer: the most elements touched at a reuse of at most 2^x, read at 20 points x, in log2."""
    columns = []
    for touched in nests.touched:
        reuse = np.log2(nests.inside / touched)
        for point in CURVE_POINTS:
            columns.append(np.where(reuse <= point, np.log2(touched), -1.0).max(axis=1))
    return np.stack(columns, axis=1)
