"""Gavel's simulator (OSDI'20, the authors' release): rounds of six minutes, time divided by shares.

- The clock jumps to the *latest* end of the running round, or to the next arrival where nothing runs; jobs
  that arrive during a round wait for its end. A round is a little shorter than six minutes, since a job does
  whole steps: as many as fit into it. A job that ends early leaves its devices idle until the round does.
  Nothing costs time.
- Time is divided anew only when jobs came or went and the last division is 1,920 s old (or was made at time
  zero, or the cluster has been idle after the last arrival). Until then new jobs have no share and wait; they
  may keep room from others all the same.
- Each type of device is gone through in turn, by falling alphabet (V100, P100, K80); policies that do not
  look at speeds go through them in an order drawn from the seed plus 5.
- Speeds are those on one server, wherever the devices are.
- ``worker_busy_fraction`` counts a round as begun when the one before ended, idle gaps included.
- A job on several GPUs whose steps of a round are fewer than its GPUs fails; five failures in a row drop it.
"""

from __future__ import annotations

from experiments.cluster.simulator.releases.gavel.clock import simulate

__all__ = ["simulate"]
