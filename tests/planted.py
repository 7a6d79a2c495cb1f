"""A module that a test puts among the policies of a family, and takes away again with all that the registry knew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.core import registry


@contextmanager
def planted(family: str, folder: Path, text: str, name: str = "planted") -> Iterator[None]:
    """``text`` as ``experiments/<family>/policies/<name>.py``, which lies in ``folder``."""
    package = registry.load_module(family, "policies")
    paths = list(package.__path__)
    (folder / f"{name}.py").write_text(text)
    package.__path__ = [*paths, str(folder)]
    _forget()
    try:
        yield
    finally:
        package.__path__ = paths
        sys.modules.pop(f"{package.__name__}.{name}", None)
        _forget()


def _forget() -> None:
    for known in (registry._modules, registry.family_policies, registry._in_its_file):
        known.cache_clear()
