"""One shared device: the executor of layers and kernels, and the figures of what it did."""

from experiments.serving.simulator.sharing.executor import SharedRequest, SharingPlan, Span, share
from experiments.serving.simulator.sharing.figures import sharing_curves, sharing_figures

__all__ = ["SharedRequest", "SharingPlan", "Span", "share", "sharing_curves", "sharing_figures"]
