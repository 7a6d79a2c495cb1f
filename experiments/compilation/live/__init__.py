"""Carries out answers of policies with torch: export, rewriting, backends, verification in float64, timing."""

from experiments.compilation.live.backends import CompilationFailed
from experiments.compilation.live.graphs import graph_of
from experiments.compilation.live.report import counts, plan_of, predicted_metrics
from experiments.compilation.live.runner import carry_out

__all__ = ["CompilationFailed", "carry_out", "counts", "graph_of", "plan_of", "predicted_metrics"]
