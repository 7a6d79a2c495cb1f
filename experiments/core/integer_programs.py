"""Mixed-integer linear programs by HiGHS, through scipy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

#: scipy's status for all that is neither a solution nor a proof that there is none; the solver's word where
#: that is because its own answer violates constraints.
FAILED, SOLVE_ERROR = 4, "Solve error"


def minimize(cost: npt.NDArray[np.float64], *, options: Any = None, **asked: Any) -> OptimizeResult:
    """Return what ``scipy.optimize.milp`` says, asked as that is.

    HiGHS's presolve may leave an answer that violates a constraint by 1e-6, which the solver then refuses
    itself; without presolve it finds one that is feasible.
    """
    from scipy.optimize import milp  # here, because loading it takes longer than most runs

    found = milp(cost, options=options, **asked)
    if found.status == FAILED and SOLVE_ERROR in found.message:
        without: Any = {**(options or {}), "presolve": False}
        found = milp(cost, options=without, **asked)
    return found
