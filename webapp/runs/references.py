"""How a submission names files: as artifacts of its project or by the lab's own names, never as a path of a
worker's host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.package_files import is_package_file
from experiments.models.catalog import ZOO
from experiments.models.served import SERVED
from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact, ArtifactQuerySet

#: Options of a workload that name another file.
NAMING = ("model", "extra")
OPTIONS = "spec.workload.options"
ARTIFACTS = "artifact:<id> or sha256:<hash> of an artifact of this project"
#: How the archive of a folder is called.
ARCHIVES = (".zip", ".tar.gz", ".tgz")
BROUGHT = "package:<name> of a file that the lab brings"
EXPECTED = {
    "source": f"{ARTIFACTS}, zoo:<name>, or {BROUGHT}; a path is not taken",
    "model": f"{', '.join(SERVED)}, zoo:<name>, or {ARTIFACTS}; a path is not taken",
    "extra": f"{ARTIFACTS}, or {BROUGHT}; a path is not taken",
    "nodes": f"{ARTIFACTS}, a node list; a path is not taken",
}
_BY_ID = re.compile(r"artifact:([0-9]{1,18})")
#: As asked for, and as the spec of an outcome names its workload (``trace.csv@<hash>``).
_BY_HASH = re.compile(r"(?:sha256:|[^\0]*@)([0-9a-f]{64})")


def find_artifact(artifacts: ArtifactQuerySet, reference: str) -> Artifact | None:
    """The one of ``artifacts`` that ``reference`` names by number or by the hash of its content."""
    if by_id := _BY_ID.fullmatch(reference):
        return artifacts.filter(pk=int(by_id.group(1))).first()
    if by_hash := _BY_HASH.fullmatch(reference):
        return artifacts.filter(blob_id=by_hash.group(1)).order_by("pk").first()
    return None


def require_artifact(project: Project, reference: str, where: str) -> Artifact:
    """``BadInput`` where the project has no such artifact, or one that cannot be read."""
    field = where.rpartition(".")[2]
    found = find_artifact(Artifact.objects.of(project), reference)
    if found is None:
        raise BadInput(f"{reference!r:.80} is not there", where, EXPECTED[field])
    # A side file is no workload, so by itself it was rejected: whether it fits is seen where it is read.
    if found.state == Artifact.State.REJECTED and field != "extra":
        raise BadInput(f"{reference:.80} was rejected: {found.reason}", where, "a readable artifact")
    return found


def find_upload(project: Project, file: str, where: str) -> str:
    """The project's readable artifact of that file name; ``BadInput`` asks for it."""
    name = PurePath(file).name
    found = Artifact.objects.of(project).ready().filter(name=name).first()
    if found is None:
        raise BadInput(f"this project has no artifact {name}", where, f"an upload of {name}")
    return f"artifact:{found.pk}"


def side_file(project: Project, file: str) -> str | None:
    """The newest upload of that file name that is no workload by itself, as side files are not; a folder is
    uploaded as an archive.
    """
    name = PurePath(file).name
    uploads = Artifact.objects.of(project).filter(name__in=[name, *(name + end for end in ARCHIVES)])
    found = uploads.filter(state=Artifact.State.REJECTED).first()
    return f"artifact:{found.pk}" if found else None


def by_file_names(project: Project, workload: Mapping[str, Any]) -> dict[str, Any]:
    """A workload of a suite whose user brings the files, with the project's uploads of these names instead.

    A side file that the workload does not name is taken where it bears the name of the workload, as it is on
    the command line. ``BadInput`` asks for an upload that is missing.
    """
    source, options = workload["source"], dict(workload.get("options", {}))
    extra = options.get("extra")
    side = side_file(project, extra or source)
    if extra is not None:
        side = side or find_upload(project, extra, "workload.options.extra")
    named = {**options, "extra": side} if side else options
    return {**workload, "source": find_upload(project, source, "workload.source"), "options": named}


def is_known_model(reference: str) -> bool:
    """A model that a request trace may be served by, which needs no file."""
    return reference in SERVED or (reference.startswith("zoo:") and reference.removeprefix("zoo:") in ZOO)


def is_of_the_lab(option: str, reference: str) -> bool:
    """Whether a reference means something that the lab itself has, so that no artifact is needed."""
    return is_known_model(reference) if option == "model" else is_package_file(reference)


def settle_references(project: Project, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with every artifact named by its number; ``BadInput`` for whatever is neither artifact nor
    name.
    """
    return {name: _settle(project, name, value) for name, value in options.items()}


def _settle(project: Project, option: str, value: Any) -> Any:
    if option not in NAMING or value is None or is_of_the_lab(option, value):
        return value
    return f"artifact:{require_artifact(project, value, f'{OPTIONS}.{option}').pk}"
