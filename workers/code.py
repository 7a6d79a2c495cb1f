"""The domain package of a stored revision, laid out for a trial that is to be carried out by it."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

from django.conf import settings

from workers.sources import Unusable

PACKAGE = "experiments"
#: What a run may name; anything else could be an option of git.
REVISION = re.compile(r"[0-9a-f]{7,40}")
#: For which git is waited for (seconds).
PATIENCE = 60


def lay_out(revision: str, work: Path) -> Path:
    """The folder, inside of ``work``, that holds the package as it was at ``revision``.

    ``Unusable`` where this host's checkout has no such revision.
    """
    if not REVISION.fullmatch(revision):
        raise Unusable(f"{revision!r:.50} is no revision")
    folder = work / "code"
    folder.mkdir()
    archive = work / "code.tar"
    with archive.open("wb") as output:
        words = ["git", "-C", str(settings.CODE_ROOT), "archive", "--format=tar", revision, PACKAGE]
        try:
            subprocess.run(words, stdout=output, stderr=subprocess.PIPE, check=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError) as error:
            raise Unusable(f"this host's checkout has no revision {revision[:12]}") from error
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    return folder
