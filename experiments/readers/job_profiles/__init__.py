"""Side files of traces of jobs and requests: how fast models run on what.

One module for each layout, found by being there.

A module has ``PROFILES``, of which ``recognizes`` and ``read`` are given the side file's members: those of a
folder or an archive, or the one file that it is.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.core.errors import BadInput
from experiments.readers import archive
from experiments.readers.archive import Member

#: Files of a folder that are read at most.
MOST_FILES = 1000


@dataclass(frozen=True)
class ProfileReader:
    """How one layout of side files is told and read.

    - ``recognizes(members)`` decides by their names and content.
    - ``read(members, name)`` gives a kind of ``experiments.workloads.profiles``; ``BadInput`` names file and
      line.
    - ``describe`` is one line for messages.
    """

    layout: str
    describe: str
    recognizes: Callable[[Sequence[Member]], bool]
    read: Callable[[Sequence[Member], str], Any]


def profile_readers() -> Sequence[ProfileReader]:
    """Return the readers of all layouts, in alphabetical order of their modules."""
    modules = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [
        importlib.import_module(f"experiments.readers.job_profiles.{module}").PROFILES for module in modules
    ]


def open_profiles(path: Path) -> Any:
    """Read the side file, folder or archive at ``path``, whatever its layout."""
    members = _members(path)
    known = profile_readers()
    matches = [reader for reader in known if reader.recognizes(members)]
    if len(matches) != 1:
        layouts = "; ".join(reader.describe for reader in known)
        what = "is no profile of models" if not matches else "could be several layouts"
        raise BadInput(f"{what} that can be read", path.name, layouts)
    return matches[0].read(members, path.name)


def _members(path: Path) -> list[Member]:
    if not path.is_dir():
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BadInput(error.strerror or str(error), path.name, "a readable side file") from None
        return list(archive.members(raw, path.name))
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    if len(files) > MOST_FILES:
        raise BadInput(f"has {len(files)} files", path.name, f"at most {MOST_FILES}")
    return [
        member
        for file in files
        for member in archive.members(file.read_bytes(), f"{path.name}: {file.relative_to(path).as_posix()}")
    ]
