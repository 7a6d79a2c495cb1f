"""Performance models: how fast a job runs on a gang, by what is known of it.

fixed         seconds on the devices asked for; in proportion when resized
"""

from experiments.cluster.planning.performance.fixed import FixedSpeed

__all__ = ["FixedSpeed"]
