"""Schedules measured for real: C++ on this host, Triton on a GPU."""

from experiments.compilation.live.tuning.bench import Bench

__all__ = ["Bench"]
