"""One shared device: the executor of layers and kernels, and the figures of what it did."""

from experiments.serving.interface.sharing_plan import SharedRequest, SharingPlan, Span
from experiments.serving.simulator.sharing.executor import share
from experiments.serving.simulator.sharing.figures import sharing_curves, sharing_figures

__all__ = ["SharedRequest", "SharingPlan", "Span", "share", "sharing_curves", "sharing_figures"]
