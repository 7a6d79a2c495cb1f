"""Control flow carried out at the level that a policy chooses.

Constructs found, put into forms, counted and timed.
"""

from experiments.compilation.live.control.search import build

__all__ = ["build"]
