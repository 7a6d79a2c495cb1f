"""Where the time of a profiled process went, as JSON for its page: ``report`` joins the other files.

``intervals`` (unions), ``occupancy`` (compute, communication, copies, idle), ``idle`` (by cause),
``launches`` (delays, short kernels), ``rankings`` (kernels, operators, modules), ``memory`` (over time).
Where Holistic Trace Analysis has a definition it is this one, and the numbers are equal.
"""

from __future__ import annotations

from experiments.summaries.profile.report import report

__all__ = ["report"]
