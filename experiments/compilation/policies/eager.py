"""Eager: the module as it is, op by op. The baseline of every compilation table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import Graph, Recipe, RecipePolicy


@dataclass(frozen=True)
class Eager(RecipePolicy):
    """Runs the module op by op; nothing is compiled."""

    name: ClassVar[str] = "eager"
    mechanism: ClassVar[str] = "as it is"

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe("eager")
