"""What is in a workload, as cards (figures) and plots (points), for ``inspect`` and the artifact page.

JSON only: ``{"cards": [{"label", "value", "unit"}], "estimates": [...], "plots": [{"title", "kind",
"x_label", "x_unit", "y_label", "y_unit", "log", "series": [{"name", "x", "y", "text"}], "sampled"}]}``. A
plot never has more than ``MOST_POINTS`` points; ``sampled`` says from how many they were taken. Bars of a
plot with ``stack`` stand on one another.
"""

from __future__ import annotations

from experiments.summaries import compilation, layers, model, nodes, scenario, step, traces
from experiments.summaries.drawing import card
from experiments.summaries.summary import summary
from experiments.summaries.training_memory import peak_bars

#: Each adds its kinds of workload to ``summary``.
KINDS = (compilation, layers, model, nodes, scenario, step, traces)

__all__ = ["card", "peak_bars", "summary"]
