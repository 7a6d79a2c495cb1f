"""Who gets how many processors and how much memory in a round: TUNE, GREEDY, or equal parts.

TUNE (section 4.2): what a job wants is cut to its GPUs' equal part where it does not fit, first of the job
itself, then of those that run where it could; so every job that has GPUs runs, and none slower than with an
equal part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.cluster.policies.synergy.profiling import Profile
from experiments.cluster.policies.synergy.servers import Servers, Spread

#: Nodes on which a job runs already.
Before = Mapping[int, Iterable[int]]


def tune(
    jobs: Sequence[int],
    gpus: Sequence[int],
    profiles: Mapping[int, Profile],
    servers: Servers,
    before: Before,
) -> None:
    """Give all of ``jobs`` servers, the largest first; there are GPUs for all of them."""
    for job in sorted(jobs, key=lambda job: -gpus[job]):
        wanted = profiles[job]
        for each in (wanted.best, wanted.cut):
            spread = servers.find(gpus[job], each, before.get(job, ()))
            if spread is not None:
                servers.give(job, spread, each)
                break
        else:
            spread = servers.with_gpus(gpus[job])
            _make_room(spread, wanted, profiles, servers)
            servers.give(job, spread, wanted.cut)


def _make_room(spread: Spread, wanted: Profile, profiles: Mapping[int, Profile], servers: Servers) -> None:
    """Cut jobs on the servers of ``spread`` until the newcomer's cut fits.

    Those on fewest servers first, then those with most processors and most memory for each GPU.
    """
    for node, count in spread.items():
        server = servers.servers[node]

        def place(job: int) -> tuple[int, float, float, int]:
            given = servers.given[job]
            return len(servers.spread[job]), -given.cpus, -given.memory, job

        for job in sorted(server.jobs, key=place):
            if not server.lacks(count, wanted.cut):
                break
            if servers.given[job].exceeds(profiles[job].cut):
                servers.cut(job, profiles[job].cut)


def greedy(
    jobs: Sequence[int],
    gpus: Sequence[int],
    profiles: Mapping[int, Profile],
    servers: Servers,
    before: Before,
) -> None:
    """Give jobs all that they want, in order; those that do not fit wait, and GPUs idle."""
    for job in jobs:
        spread = servers.find(gpus[job], profiles[job].best, before.get(job, ()))
        if spread is not None:
            servers.give(job, spread, profiles[job].best)
