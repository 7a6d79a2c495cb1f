"""A RunSpec from outside (the API, a suite, a claim) as a trial of a project, checked as far as
can be unrun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments import hardware
from experiments.core import registry
from experiments.core.completion import complete
from experiments.core.errors import BadInput
from experiments.core.package_files import is_package_file
from experiments.core.reading import refuse_unreadable
from experiments.core.spec import RunSpec, load_spec
from experiments.models.catalog import NAMES
from webapp.accounts.models import Project, User
from webapp.artifacts import generated
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import add_generated, add_package_file, add_zoo
from webapp.artifacts.step_options import spell_out_options
from webapp.runs import references
from webapp.runs.grid import MOST_RUNS, Trial
from webapp.runs.node_lists import named_list, settle_nodes


def check_spec(spec: RunSpec) -> RunSpec:
    """The spec completed, its policy, knobs and hardware known to exist; of a node list the run says more."""
    completed, _ = complete(spec)
    if named_list(completed.hardware) is None:
        hardware.resolve(completed.hardware)
    return completed


@dataclass(frozen=True)
class Submission:
    """Where and for whom runs are submitted; ``needs`` is the kind of device of measured runs.

    A trial has its options as they were given; the submission of the experiment puts the artifact in as
    source.
    """

    project: Project
    user: User | None
    needs: str = "cpu"

    def trial(self, data: Any) -> Trial:
        """``BadInput`` names the field of the spec that is wrong."""
        spec = check_spec(load_spec(data))
        artifact = self._artifact(spec)
        policy = registry.policy_class(spec.family, spec.policy)
        kind = artifact.kind or ("model" if artifact.zoo else "")
        if kind:
            refuse_unreadable(policy, spec.mode, kind, "spec.workload.source")
        options = references.settle_references(self.project, data["workload"].get("options", {}))
        options = spell_out_options(artifact, options, policy.fp32_gradients)
        asked = {
            **spec.to_json(),
            "workload": {"format": spec.workload.format, "options": options},
            "hardware": settle_nodes(self.project, spec.hardware, spec.family),
        }
        return Trial(artifact, asked, self.needs if spec.mode == "measured" else "")

    def _artifact(self, spec: RunSpec) -> Artifact:
        source = spec.workload.source
        if source.startswith("zoo:"):
            return self._zoo(source.removeprefix("zoo:"))
        if source in generated.TRACES:
            return add_generated(self.project, self.user, source)  # type: ignore[arg-type]  # as of the zoo
        if is_package_file(source):
            return add_package_file(self.project, self.user, source)  # type: ignore[arg-type]  # as of the zoo
        return references.require_artifact(self.project, source, "spec.workload.source")

    def _zoo(self, name: str) -> Artifact:
        if name not in NAMES:
            raise BadInput(
                f"{name!r:.80} is not in the zoo", "spec.workload.source", ", ".join(sorted(NAMES))
            )
        return add_zoo(self.project, self.user, name)  # type: ignore[arg-type]  # an artifact may have no owner


def trials_of(submission: Submission, rows: Any) -> list[Trial]:
    """Every spec of a list; a complaint says which."""
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_RUNS:
        raise BadInput("not a list of runs", "runs", f"1 to {MOST_RUNS} RunSpecs")
    trials = []
    for index, row in enumerate(rows):
        try:
            trials.append(submission.trial(row))
        except BadInput as error:
            field = (error.where or "").removeprefix("spec").strip(".")
            place = f"runs[{index}].{field}" if field else f"runs[{index}]"
            raise BadInput(error.what, place, error.expected) from None
    return trials


def spec_of(trial: Trial) -> dict[str, Any]:
    """The spec of the run that the trial becomes."""
    return {**trial.spec, "workload": {"source": f"artifact:{trial.artifact.pk}", **trial.spec["workload"]}}


def identity(spec: Mapping[str, Any]) -> str:
    """The same for a trial and for the run it became, in every experiment of a project."""
    return complete(load_spec(dict(spec)))[0].spec_id
