"""What a trial is given for an artifact, and how an outcome calls it: files by the host's path, results by
hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webapp.artifacts.models import Artifact
from webapp.runs import node_lists, references
from webapp.runs.models import Run
from workers import files


class Unusable(Exception):
    """The run cannot be carried out, and never will: the reason is for the user."""


def source_of(artifact: Artifact) -> tuple[str, tuple[Path, ...]]:
    """What the command line is given as a workload's source, and the file that goes with it."""
    if artifact.fileless:
        return artifact.fileless, ()
    if artifact.blob is None:
        raise Unusable(f"{artifact.name} has no content")
    path = files.local(artifact.blob)
    return str(path), (path,)


def portable_source(artifact: Artifact) -> str:
    """The workload in a stored outcome: its name, or a file's name and hash; never a path of this host."""
    return artifact.fileless or f"{artifact.name}@{artifact.blob_id}"


def named_files(run: Run, options: Mapping[str, Any]) -> dict[str, Artifact]:
    """The artifacts that options of the workload name. Checked again here: a path in the database opens
    nothing.
    """
    found = {}
    for name in references.NAMING:
        value = options.get(name)
        if value is None or references.is_of_the_lab(name, value):
            continue
        artifact = references.find_artifact(Artifact.objects.filter(project=run.project), value)
        if artifact is None:
            raise Unusable(f"{name}: {value!r:.80} is not an artifact of this project")
        found[name] = artifact
    return found


def placed_file(artifact: Artifact, work: Path, option: str) -> str:
    """What the trial is given as an option's value. A model's file is told by its ending, and called by its
    name.
    """
    source, inputs = source_of(artifact)
    if option != "model" or not inputs:
        return source
    link = work / f"{file_name(artifact).removesuffix('.json')[:100]}.json"
    link.symlink_to(source)
    return str(link)


def node_list_of(run: Run) -> Artifact | None:
    """The node list that is the run's cluster, checked again like other files."""
    reference = node_lists.named_list(run.spec.get("hardware"))
    if reference is None:
        return None
    found = references.find_artifact(Artifact.objects.filter(project=run.project), reference)
    if found is None:
        raise Unusable(f"hardware: {reference!r:.80} is not an artifact of this project")
    return found


def placed_list(nodes: Artifact, work: Path) -> str:
    """A node list by the name that its owner gave it, as its complaints call it."""
    source, _ = source_of(nodes)
    link = work / f"nodes-{file_name(nodes)[-100:]}"
    link.symlink_to(source)
    return str(link)


def file_name(artifact: Artifact) -> str:
    """What its owner calls it, as far as that is harmless as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", artifact.name).lstrip(".") or "model"
