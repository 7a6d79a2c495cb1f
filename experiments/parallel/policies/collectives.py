"""Collectives in the alpha-beta model: each all-reduce by the algorithm that is fastest for its size on this
cluster.

Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and
experience", CCPE 19(13), 2007: minimum spanning trees for short vectors (sections 4 and 6), bucket (ring)
algorithms for long ones (section 5); recursive doubling and halving-doubling from Thakur, Rabenseifner and
Gropp, IJHPCA 19(1), 2005. A transfer of n bytes costs alpha + n beta; on a cluster the rounds of each
algorithm are costed on the links that they cross. The size from which the ring is faster than the tree is
searched for there; where all links are equal the notes give the papers' formula too.

Not reproduced: the arithmetic (gamma), and hybrids that cut a vector differently on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware, Link
from experiments.hardware.algorithms import Algorithms, Groups, least_size
from experiments.hardware.collectives import ring_beats_tree_from
from experiments.parallel.interface import ALGORITHMS, ParallelPlan, PlanningEstimate
from experiments.parallel.planning.gradient_exchange import GradientExchange

#: Sizes for which the notes say what is fastest, and the largest that the search looks at, in bytes.
SIZES = tuple(float(4**power) for power in range(4, 17))
MOST = 2.0**50


@dataclass(frozen=True)
class Collectives(GradientExchange):
    """Data parallelism whose all-reduces each use the algorithm that costs least for their size."""

    name: ClassVar[str] = "collectives"
    mechanism: ClassVar[str] = "data parallel"

    algorithm: str = knob("auto", "all-reduce algorithm; auto: the fastest for each size", choices=ALGORITHMS)

    def complete(self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate) -> ParallelPlan:
        return replace(plan, notes=choices(cluster))


def choices(cluster: Hardware) -> dict[str, Any]:
    """Return for each of ``SIZES`` the fastest all-reduce, and the size from which a ring wins.

    Over all devices; a ring against a tree.
    """
    algorithms, everybody = Algorithms(cluster), (tuple(range(cluster.device_count)),)
    usable = algorithms.usable("all_reduce", everybody)
    rows = [
        {
            "bytes": size,
            "algorithm": algorithms.best("all_reduce", everybody, size),
            "seconds": {name: cost.seconds(size) for name, cost in usable.items()},
        }
        for size in SIZES
    ]
    link = _only_link(cluster)
    formula = ring_beats_tree_from(link, cluster.device_count) if link else None
    return {
        "choices": rows,
        "ring_beats_tree_from": {"searched": crossover(algorithms, everybody), "formula": formula},
    }


def crossover(algorithms: Algorithms, groups: Groups) -> float | None:
    """Return the bytes from which a ring costs no more than a tree, by bisection.

    Nothing where it does for none up to ``MOST``.
    """
    ring, tree = (algorithms.cost("all_reduce", groups, name) for name in ("ring", "tree"))
    assert ring is not None
    assert tree is not None
    return least_size(lambda size: ring.seconds(size) <= tree.seconds(size), MOST)


def _only_link(cluster: Hardware) -> Link | None:
    """The link between any two devices, where there is but one kind."""
    if cluster.node_count == 1:
        return cluster.node.link
    alone = all(node.device_count == 1 for node in cluster.nodes)
    return cluster.network if alone and cluster.switch is None else None
