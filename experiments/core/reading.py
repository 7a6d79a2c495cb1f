"""What a run of a policy reads of a workload, and how one that it cannot read is refused: asked by forms,
workers and runs.

A workload has a kind, which its reader gives it. A policy says for each mode of which kinds its runs are
(``workloads``), and what a simulated run on a model is given (``reads``).
"""

from __future__ import annotations

from collections.abc import Iterable

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import MODEL, SIZES, Policy

#: The kinds of workload, and what users call them.
NOUNS = {
    "model": "a model",
    "step": "a training step",
    "layers": "a layer profile",
    "jobs": "a cluster job trace",
    "requests": "a request trace",
    "rules": "substitution rules",
    "operators": "a list of operators",
    "tuning": "a tuning log",
    "split": "a model between a device and a cloud",
    "nodes": "a list of a cluster's nodes",
}
KINDS = tuple(NOUNS)


def what_is_read(policy: type[Policy], mode: str, kind: str, *, tells_sizes: bool) -> str:
    """Return what a run is given of a workload of ``kind``.

    Itself, or ``step`` where a model is captured first.

    ``tells_sizes`` says whether the model's sizes are enough to know all its operators.
    """
    is_whole = mode == "measured" or policy.reads == MODEL or (policy.reads == SIZES and tells_sizes)
    return "step" if kind == "model" and not is_whole else kind


def refuse_unreadable(policy: type[Policy], mode: str, kind: str, where: str) -> None:
    """Raise ``BadInput`` where runs of the policy in this mode read no workload of its ``kind``.

    The error names the workload.
    """
    wanted = policy.workloads.get(mode, ())
    if kind not in wanted:
        raise refusal(kind, wanted, where)


def refusal(kind: str, wanted: Iterable[str], where: str) -> BadInput:
    """Return the one wording for a workload of a kind that is not ``wanted``."""
    return BadInput(f"is {NOUNS.get(kind, kind)}", where, " or ".join(NOUNS[one] for one in wanted))


def families_reading(kind: str) -> list[str]:
    """Return the families that have a policy with runs on workloads of ``kind``."""
    found = {policy.family: None for policy in registry.all_policies() if _reads(policy, kind)}
    return list(found)


def _reads(policy: type[Policy], kind: str) -> bool:
    return any(kind in kinds for kinds in policy.workloads.values())
