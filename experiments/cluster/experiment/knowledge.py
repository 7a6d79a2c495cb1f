"""Whether a trace tells what a scheduler cannot do without."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.cluster.interface import ClusterPolicy, Performance
from experiments.cluster.interface.policy import OWN
from experiments.core.errors import BadInput
from experiments.readers.base import readers
from experiments.workloads import generated_jobs
from experiments.workloads.jobs import TRAITS, JobTrace

#: Engines that place jobs without GPUs on processors and memory alone.
ON_HOSTS = (OWN, "fgd")
#: What the columns are that every trace has, though it may have nothing in them.
_PLAIN: Mapping[str, str] = {
    "deadline": "by when each job must end",
    "model": "what each job trains",
    "tenant": "whose each job is",
}


def refuse_unknown(
    policy: ClusterPolicy, trace: JobTrace, performance: Performance, formats: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise ``BadInput`` where ``trace`` lacks a column or a performance model that ``policy`` needs.

    The error names the column, and of ``formats`` those that have it.
    """
    for name in sorted(policy.needs):
        if not trace.has(name):
            having = [format_name for format_name, columns in formats.items() if name in columns]
            meaning = TRAITS.get(name) or _PLAIN.get(name, name)
            what = f"has no {name} ({meaning}), which {policy.name} needs"
            raise BadInput(what, trace.name, f"a trace of {' or '.join(having)}" if having else None)
    several = int((trace.gpus > 1).sum())
    if policy.single_gpu and several:
        what = f"has {several} jobs of several GPUs, of {len(trace)}, and {policy.name} knows jobs of one"
        raise BadInput(what, trace.name, "a trace of jobs of one GPU each")
    _refuse_without_gpus(policy, trace)
    if policy.models and performance.name not in policy.models:
        what = f"tells no more than {performance.name} speeds, and {policy.name} needs more"
        raise BadInput(
            what, trace.name, f"a side file (options.extra) with {' or '.join(policy.models)} speeds"
        )


def _refuse_without_gpus(policy: ClusterPolicy, trace: JobTrace) -> None:
    none = int((trace.gpus == 0).sum())
    if none and (policy.gpus_only or policy.rules not in ON_HOSTS):
        rules = "" if policy.gpus_only else f" under the rules of {policy.rules}"
        what = f"has {none} jobs without GPUs, of {len(trace)}, and {policy.name}{rules} knows none"
        raise BadInput(what, trace.name, "a trace whose jobs all want GPUs, or another policy, as fifo")


def columns_of_formats() -> Mapping[str, tuple[str, ...]]:
    """Return the formats of job traces and the kinds that are drawn, with the columns that theirs have."""
    drawn = {f"generated:{kind}": columns for kind, columns in generated_jobs.COLUMNS.items()}
    return {name: reader.columns for name, reader in readers().items() if reader.kind == "jobs"} | drawn
