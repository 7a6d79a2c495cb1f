"""Searches over hyper-parameters: which of the jobs of a group are behind a sibling.

A job reports the losses of the steps that it has done; nothing is known of later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.cluster.interface import ClusterView

Losses = tuple[tuple[float, float], ...]


def losers(view: ClusterView, members: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Jobs of ``members`` to end, each with the reason.

    A job is behind once a sibling reached a lower loss in no more steps than the job has done.
    """
    groups: dict[str, list[tuple[int, Losses]]] = {}
    for job in members:
        reported = _reported(job, view)
        if reported:
            groups.setdefault(view.jobs.column("group")[job], []).append((job, reported))
    for siblings in groups.values():
        for job, mine in siblings:
            if view.done(job) >= view.works[job]:
                continue
            step, loss = mine[-1]
            best = min((value, at) for _, other in siblings for at, value in other if at <= step)
            if best[0] < loss:
                yield (
                    job,
                    f"its loss is {loss:g} after {step:g} steps; a sibling had {best[0]:g} after {best[1]:g}",
                )


def is_searched(job: int, view: ClusterView) -> bool:
    """Whether a job belongs to a group and reports losses."""
    jobs = view.jobs
    if not (jobs.tells("group") and jobs.tells("losses")):
        return False
    return bool(jobs.column("group")[job]) and len(jobs.column("losses")[job]) > 0


def _reported(job: int, view: ClusterView) -> Losses:
    """The losses of the steps that it has done; the last step told is its last."""
    losses: Losses = view.jobs.column("losses")[job]
    work = view.works[job]
    share = view.done(job) / work if work else 1.0
    reached = share * losses[-1][0]
    return tuple((step, loss) for step, loss in losses if 0 < step <= reached + 1e-9)
