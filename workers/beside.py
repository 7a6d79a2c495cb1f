"""Files that say something about one another: one whose reader looks at its siblings is read again beside
them.

A file is read alone when it arrives. Where its reader could say more beside other files (``looks_beside`` of
``inspect``), it and the project's files of the same family are then read once more, all of them in one
folder.
"""

from __future__ import annotations

from pathlib import Path

from webapp.artifacts.models import Artifact
from webapp.runs.models import Run
from workers.sources import file_name, source_of

#: Siblings that are placed beside a file, at most.
MOST = 64


def siblings(artifact: Artifact) -> list[Artifact]:
    """Files of its project and format whose names begin alike, up to the last ``_``: ``ViT_512``, ``ViT_768``
    ...
    """
    family = artifact.name.rpartition("_")[0]
    if not family:
        return []
    found = Artifact.objects.of(artifact.project).ready().exclude(pk=artifact.pk).exclude(blob=None)
    alike = found.filter(format=artifact.format, name__startswith=f"{family}_")
    return list(alike.select_related("blob").order_by("name", "-pk")[:MOST])


def place_with_siblings(artifact: Artifact, work: Path) -> tuple[str, tuple[Path, ...]]:
    """The file in a folder with its siblings, under their own names, and the files that these are."""
    folder = work / "beside"
    folder.mkdir()
    inputs = []
    for one in (artifact, *siblings(artifact)):
        (file,) = source_of(one)[1]
        link = folder / file_name(one)
        if not link.is_symlink():  # two of the same name: the newest
            link.symlink_to(file)
            inputs.append(file)
    return str(folder / file_name(artifact)), tuple(inputs)


def readings_again(artifact: Artifact) -> tuple[Run, ...]:
    """Runs, not stored yet, that read ``artifact`` and its siblings beside each other; none where it has
    none.

    A sibling whose reading is queued already is not read twice.
    """
    family = siblings(artifact)
    queued = Run.objects.filter(kind=Run.Kind.INSPECT, state=Run.State.QUEUED, spec__beside=True)
    waiting = set(queued.filter(artifact__in=family).values_list("artifact", flat=True))
    asked = [artifact, *(one for one in family if one.pk not in waiting)] if family else []
    return tuple(
        Run(
            project=one.project,
            artifact=one,
            owner_id=one.created_by_id,
            kind=Run.Kind.INSPECT,
            spec={"beside": True},
        )
        for one in asked
    )
