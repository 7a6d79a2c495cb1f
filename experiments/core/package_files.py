"""Files that the package brings, by names that mean the same in every folder and on every host.

``package:g10/bert-256.step`` is ``g10/bert-256.step`` below ``experiments/suites/traces``. Papers' sheets,
suites and specs name them so, as a workload's source or as its side file.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from experiments.core.errors import BadInput

PREFIX = "package:"
FOLDER = Path(__file__).resolve().parent.parent / "suites" / "traces"


@functools.cache
def package_files() -> Mapping[str, Path]:
    """Return every file that the package brings, by its name."""
    files = (path for path in sorted(FOLDER.rglob("*")) if path.is_file())
    return MappingProxyType({path.relative_to(FOLDER).as_posix(): path for path in files})


def is_package_file(reference: str) -> bool:
    """Return whether ``reference`` is the name of a file that the package brings."""
    return reference.startswith(PREFIX) and reference.removeprefix(PREFIX) in package_files()


def path_of(reference: str) -> Path:
    """Return the path that a source means: of a file of the package, or as it is written.

    ``BadInput`` names what the package has where it has no such file; nothing outside it can be named.
    """
    if not reference.startswith(PREFIX):
        return Path(reference)
    if not is_package_file(reference):
        names = ", ".join(PREFIX + name for name in package_files())
        raise BadInput("the package brings no such file", reference, f"one of {names}")
    return package_files()[reference.removeprefix(PREFIX)]
