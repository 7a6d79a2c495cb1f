"""Carries out answers of policies with torch.

Export, rewriting, backends, verification in float64, timing.
"""

from experiments.compilation.live.backends import CompilationFailed, OutOfMemory
from experiments.compilation.live.graphs import graph_of
from experiments.compilation.live.preparation import prepare
from experiments.compilation.live.report import counts, plan_of, predicted_metrics
from experiments.compilation.live.rtasks.recipe import schedule_recipe
from experiments.compilation.live.runner import choose_levels, follow, rewrite, rewrite_by_roofline
from experiments.compilation.live.tiles import recipe_of
from experiments.compilation.live.training_step import with_update

__all__ = [
    "CompilationFailed",
    "OutOfMemory",
    "choose_levels",
    "counts",
    "follow",
    "graph_of",
    "plan_of",
    "predicted_metrics",
    "prepare",
    "recipe_of",
    "rewrite",
    "rewrite_by_roofline",
    "schedule_recipe",
    "with_update",
]
