"""Sketches: the structures of a program that Ansor's rules derive from its stages, from the output backwards.

Rules for CPUs in TVM's order (auto_scheduler, ``sketch_policy_rules.cc``): a stage that only renames is
inlined; a reduction with too little parallelism is divided into partial sums (rfactor, two ways); a stage
with reuse gets a cache for its writes where no element-wise consumer can take that place, is tiled and fused
into its consumer at level 1 or 2, or is tiled on its own; any other stage is left as it is. A rule is
skipped, applied along with the next ones, or ends the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Jobs for each core below which a reduction is worth dividing.
JOBS_PER_CORE = 16
FUSION_LEVELS = (1, 2)


@dataclass(frozen=True)
class SketchStage:
    """One step of a computation: points of its output, and terms of each sum.

    ``reuses``: reads the same input for several outputs (a product, a convolution), so tiles pay.
    ``inlinable``: each output is a plain function of one element of each input.
    """

    name: str
    spatial: int
    reduce: int = 1
    reuses: bool = False
    inlinable: bool = False


@dataclass(frozen=True)
class Sketch:
    """What was done to each stage, in the order of the stages."""

    steps: tuple[tuple[str, str], ...]

    def action_on(self, stage: str) -> str:
        return dict(self.steps)[stage]

    @property
    def keeps(self) -> str:
        """What was done to the one stage that is tiled: where its sums are kept."""
        return next(done for _, done in self.steps if done not in ("inline", "skip"))


def derive(stages: Sequence[SketchStage], cores: int) -> tuple[Sketch, ...]:
    """Return all sketches of ``stages`` (producers first)."""
    found: list[tuple[tuple[str, str], ...]] = [()]
    for place in reversed(range(len(stages))):
        stage = stages[place]
        ways = ways_of(stage, cores, is_output=place == len(stages) - 1)
        found = [((stage.name, way), *rest) for rest in found for way in ways]
    return tuple(Sketch(steps) for steps in found)


def ways_of(stage: SketchStage, cores: int, is_output: bool) -> tuple[str, ...]:
    """Return what the rules make of one stage."""
    if stage.inlinable and not is_output and stage.reduce == 1:
        return ("inline",)
    ways: tuple[str, ...] = ("rfactor-outer", "rfactor-inner") if needs_rfactor(stage, cores) else ()
    if not stage.reuses:
        return (*ways, "skip")
    # With a cache for its writes, or an element-wise consumer, the tile is fused at either level; or it
    # stands alone.
    fused = tuple(f"fused-{level}" for level in FUSION_LEVELS)
    return (*ways, *fused, "tile")


def needs_rfactor(stage: SketchStage, cores: int) -> bool:
    """Too few outputs for the cores, and long sums."""
    if stage.reuses:
        return stage.spatial <= stage.reduce and stage.spatial <= cores * JOBS_PER_CORE
    return stage.reduce > cores
