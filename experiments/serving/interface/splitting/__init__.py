"""One model between a device and a cloud: what a policy is asked, and what a division costs."""

from experiments.serving.interface.splitting.cost import Split, SplitCost, split_cost, split_faults
from experiments.serving.interface.splitting.policy import DevicePlan, SplittingPolicy

__all__ = ["DevicePlan", "Split", "SplitCost", "SplittingPolicy", "split_cost", "split_faults"]
