"""Placement by goodput: the highest rate at which the wanted share of requests is within its objective, over
devices, found by bisection over simulations.

*Fast links* (algorithm 1): each phase by itself, every shape alone; then instances of both phases are counted
so that the cluster carries most. *Slow links* (algorithm 2): both phases have the same stages, and the two
that hold the same layers share a node, so that KV never leaves it; the pair is simulated together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from experiments.core.errors import Infeasible
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    Arrangement,
    Instance,
    InstanceShape,
    Site,
    place_instances,
)
from experiments.serving.policies.distserve.goodput import Goodput, Option

#: Share of the best shape's requests on a device below which another shape is not looked at.
FAR_LESS = 0.7


class _Choice(NamedTuple):
    """Instances with the requests a second that they carry together."""

    rate: float
    instances: tuple[Instance, ...]


def search(site: Site, links: str, wanted: float, processes: int = 1) -> Arrangement:
    """Return the arrangement with the highest goodput."""
    asked = Goodput(site, wanted, processes)
    goodput: dict[str, Mapping[str, float]] = {}
    found: list[_Choice] = []
    if links != "slow":
        prompts, answers = (_each_shape(asked, role) for role in (PREFILL, DECODE))
        goodput |= {PREFILL: _named(prompts), DECODE: _named(answers)}
        found += _fast(site, prompts, answers)
    if links != "fast":
        pairs = _pairs(asked)
        goodput["pairs"] = {f"{p}x{a}+{p}x{b}": rate for (p, a, b), rate in pairs.items()}
        found += _slow(site, pairs)
    if not found:
        needed = 2 * min((shape.devices for shape in site.shapes), default=site.devices)
        what = f"{needed} devices or more are needed for prompts and answers apart, not {site.devices}"
        raise Infeasible(what, "distserve", float(needed - site.devices))
    rates = [choice.rate for choice in found]
    if len(found) > 1:
        rates = asked.find_each([choice.instances for choice in found])
    best = found[rates.index(max(rates))]
    return Arrangement(best.instances, {"goodput": goodput, "planned_rate": best.rate})


def _named(rates: Mapping[InstanceShape, float]) -> dict[str, float]:
    return {f"{shape.pipeline}x{shape.tensor}": rate for shape, rate in rates.items()}


# --- fast links ---------------------------------------------------------------------------------------------


def _each_shape(asked: Goodput, role: str) -> dict[InstanceShape, float]:
    """Requests a second of one instance of each shape, by itself.

    Shapes that carry far less on a device than another one serves are left out.
    """
    site = asked.site
    options = [
        Option(shape, instances, site.carried(instances) / shape.devices, 1 / shape.devices)
        for shape in site.shapes
        if shape.devices < site.devices
        and (instances := place_instances([(role, shape)], site.nodes, site.devices_per_node))
    ]
    return asked.find_all(options, lambda bound, best: bound >= FAR_LESS * best)


def _fast(
    site: Site, prompts: Mapping[InstanceShape, float], answers: Mapping[InstanceShape, float]
) -> Iterator[_Choice]:
    """The counts of instances whose slower phase carries most, on the fewest devices."""
    options = []
    for one, rate in prompts.items():
        for other, pace in answers.items():
            for count in range(1, (site.devices - other.devices) // one.devices + 1):
                left = (site.devices - count * one.devices) // other.devices
                needed = left if not rate or not pace else min(left, max(1, -int(-count * rate // pace)))
                carried = min(count * rate, needed * pace)
                devices = count * one.devices + needed * other.devices
                options.append((-carried, devices, one, other, count, needed))
    for carried, _, one, other, count, needed in sorted(options):
        wanted = [(PREFILL, one)] * count + [(DECODE, other)] * needed
        placed = place_instances(wanted, site.nodes, site.devices_per_node)
        if placed is not None:
            yield _Choice(-carried, placed)
            return


# --- slow links ---------------------------------------------------------------------------------------------


def _pairs(asked: Goodput) -> dict[tuple[int, int, int], float]:
    """Requests a second of a pair by its stages and the devices of a stage for prompts and for answers.

    Pairs that could not carry what others serve are left out.
    """
    site = asked.site
    shapes = [(p, one, other) for p, one in site.shapes for q, other in site.shapes if p == q]
    options = [
        Option(shape, placed[:2], site.carried(placed), len(placed) / 2)
        for shape in shapes
        if (placed := _place_pairs(site, *shape))
    ]
    return asked.find_all(options, lambda bound, best: bound > best)


def _slow(site: Site, pairs: Mapping[tuple[int, int, int], float]) -> Iterator[_Choice]:
    options = []
    for shape, rate in pairs.items():
        placed = _place_pairs(site, *shape)
        devices = sum(len(one.devices) for one in placed)
        options.append((-rate * len(placed) / 2, devices, shape))
    if options:
        carried, _, shape = min(options)
        yield _Choice(-carried, _place_pairs(site, *shape))


def _place_pairs(site: Site, pipeline: int, one: int, other: int) -> tuple[Instance, ...]:
    """As many pairs as there is room for; a segment of a node has a stage of both."""
    width = one + other
    segments = [
        node * site.devices_per_node + segment * width
        for node in range(site.nodes)
        for segment in range(site.devices_per_node // width)
    ]
    found: list[Instance] = []
    for first in range(0, len(segments) - pipeline + 1, pipeline):
        stages = segments[first : first + pipeline]
        prompts = tuple(begin + place for begin in stages for place in range(one))
        answers = tuple(begin + one + place for begin in stages for place in range(other))
        found.append(Instance(PREFILL, InstanceShape(pipeline, one), prompts))
        found.append(Instance(DECODE, InstanceShape(pipeline, other), answers))
    return tuple(found)
