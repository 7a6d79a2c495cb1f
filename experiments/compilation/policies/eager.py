"""Eager: the module as it is, op by op. The baseline of every compilation table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface import CompilationPolicy, Graph, Recipe


@dataclass(frozen=True)
class Eager(CompilationPolicy):
    """Runs the module op by op; nothing is compiled."""

    name: ClassVar[str] = "eager"

    def recipe(self, graph: Graph) -> Recipe:
        return Recipe(untouched=True)
