"""DAPPLE's estimate of a synchronous pipeline's step, from the stage that sets the pace (the pivot).

Source: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP'21, section
4.1, equations 1-4. Transfers between stages are stages of their own. Bubbles inside the pivot stage are left
out, so that it is a lower bound of the schedule's time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats


def pivots(passes: Floats, micro_batches: int) -> npt.NDArray[np.int64]:
    """Return the pivot of each plan: the stage whose steady phase outlasts those behind it.

    The last one, or an earlier one.

    ``passes`` is F + B of one micro-batch, shape (stages, plans).
    """
    last = len(passes) - 1
    found = np.full(passes.shape[1], last, np.int64)
    bar = (micro_batches - 1) * passes[last]
    for stage in range(last - 1, -1, -1):
        steady = (micro_batches - 1) * passes[stage]
        slower = steady > bar
        found = np.where(slower, stage, found)
        bar = np.where(slower, steady, bar + passes[stage])
    return found


def latencies(forward: Floats, backward: Floats, all_reduce: Floats, micro_batches: int) -> Floats:
    """Return the seconds of a step of each plan.

    Shapes: (stages, plans) in, (plans,) out.

    Warm-up (forwards up to the pivot Q), steady phase ((M - 1)(F_Q + B_Q)) and ending: the longest of every
    stage's all-reduce behind (stages up to Q) or overlapped with (later ones) the backward passes that are
    left.
    """
    pivot = pivots(forward + backward, micro_batches)
    plans = np.arange(len(pivot))
    forwards = np.cumsum(forward, axis=0)[pivot, plans]
    steady = (micro_batches - 1) * (forward + backward)[pivot, plans]
    done = np.cumsum(backward, axis=0)
    left = done[pivot, plans] - done + backward  # B of the stages s..Q
    beside = done[pivot, plans] - done - backward[pivot, plans]  # less B of the stages Q..s
    behind_pivot = np.arange(len(forward))[:, None] > pivot[None, :]
    ending = all_reduce + np.where(behind_pivot, beside, left)
    seconds: Floats = forwards + steady + ending.max(axis=0)
    return seconds
