"""What stands in ``planning/`` is used by at least two systems: what one alone uses belongs into its own
folder.

A system is a file or a folder of ``policies/``; it uses what its imports reach.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path

import grimp
import pytest

from experiments.core.policy import FAMILIES
from tests.conftest import ROOT

#: Share of a family's lines of planning that may have one system alone.
MOST = 0.1
#: Modules with one system that stay in planning, and who else uses them.
SHARED_OTHERWISE = {
    "experiments.cluster.planning.turns": "the release of gavel gives turns under every policy",
    "experiments.compilation.planning.blocks": "the simulator places the blocks that rammer plans",
    "experiments.compilation.planning.numerics": "live runs carry out the codes that quantize chooses",
    "experiments.parallel.planning.degrees": "the advisor looks at all degrees by them, as megatron does",
}


@functools.cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("experiments", cache_dir=None)


def reached(family: str, system: str) -> set[str]:
    """Modules of the family that a system's imports lead to."""
    graph, found = imports(), set[str]()
    waiting = [system, *graph.find_descendants(system)]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            nearer = graph.find_modules_directly_imported_by(module)
            waiting += [one for one in nearer if one.startswith(f"experiments.{family}.")]
    return found


def lines(module: str) -> int:
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text().splitlines())


def users(family: str) -> dict[str, set[str]]:
    """The systems that reach each module of the family's planning; packages' own docstrings do not count."""
    graph = imports()
    rooms = graph.find_descendants(f"experiments.{family}.planning")
    modules = {room for room in rooms if not (ROOT / Path(*room.split("."))).is_dir()}
    found = defaultdict[str, set[str]](set, {module: set() for module in modules})
    for system in graph.find_children(f"experiments.{family}.policies"):
        for module in reached(family, system) & modules:
            found[module].add(system)
    return found


@pytest.mark.parametrize("family", [f for f in FAMILIES if (ROOT / "experiments" / f / "planning").is_dir()])
def test_planning_holds_what_at_least_two_systems_use(family: str) -> None:
    found = users(family)
    single = {module: lines(module) for module, systems in found.items() if len(systems) == 1}
    counted = {m: n for m, n in single.items() if not any(m.startswith(room) for room in SHARED_OTHERWISE)}
    total = sum(map(lines, found))
    assert sum(counted.values()) <= MOST * total, counted


def test_every_exception_is_still_one() -> None:
    for room in SHARED_OTHERWISE:
        family = room.split(".")[1]
        found = {module: systems for module, systems in users(family).items() if module.startswith(room)}
        assert any(len(systems) == 1 for systems in found.values()), f"{room} needs no exception any more"
