"""Where the time of a profiled process went, as JSON for its page: ``report`` puts the other files' figures
together.

``intervals`` (unions), ``occupancy`` (compute, communication, copies, idle), ``idle`` (by cause), ``launches``
(delays, short kernels), ``rankings`` (kernels, operators, modules), ``memory`` (over time). Definitions are
those of Holistic Trace Analysis, which gives the same numbers.
"""

from __future__ import annotations

from experiments.summaries.profile.report import report

__all__ = ["report"]
