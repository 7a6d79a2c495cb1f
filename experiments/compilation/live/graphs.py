"""A model's forward pass as graph records, for policies that price it and run nothing."""

from __future__ import annotations

from pathlib import Path

from experiments.compilation.interface import Graph
from experiments.compilation.live.preparation import prepare
from experiments.core.progress import Progress
from experiments.workloads.model import ModelSource


def graph_of(source: ModelSource, seed: int, progress: Progress, file: Path | None = None) -> Graph:
    """Return the graph of ``source`` in evaluation, exported here."""
    progress(0.1, "building the model")
    task = prepare(source, False, seed, progress, file)
    progress(0.5, "exporting the graph")
    return task.graph
