"""A system that a test puts among the policies of a family, and takes away again with all that the registry
knew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from experiments.core import registry


@contextmanager
def planted(
    family: str, folder: Path, text: str, name: str = "planted", sheet: str | None = ""
) -> Iterator[None]:
    """Put ``text`` into ``experiments/<family>/policies/<name>.py`` with its sheet; both lie in
    ``folder``.
    """
    package = registry.load_module(family, "policies")
    paths = list(package.__path__)
    (folder / f"{name}.py").write_text(text)
    if sheet is not None:
        (folder / f"{name}.toml").write_text(sheet)
    package.__path__ = [*paths, str(folder)]
    _forget()
    try:
        yield
    finally:
        package.__path__ = paths
        for name in [name for name, module in sys.modules.items() if _lies_in(folder, module)]:
            del sys.modules[name]
        _forget()


def _lies_in(folder: Path, module: ModuleType) -> bool:
    return folder in Path(getattr(module, "__file__", None) or "").parents


def _forget() -> None:
    for known in (registry._modules, registry.family_policies, registry._in_its_file, registry._sheet):
        known.cache_clear()
