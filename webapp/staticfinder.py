"""Serves Plotly's browser bundle from the installed wheel: five megabytes that need not be in the
repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage

FOLDER = "package_data"
NAME = "plotly.min.js"


def bundle() -> Path:
    """Where the wheel keeps the bundle; plotly's Python side is not imported."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ImproperlyConfigured("the plotly wheel is not installed: pip install -r requirements.txt")
    return Path(spec.submodule_search_locations[0]) / FOLDER / NAME


class PlotlyFinder(BaseFinder):
    """Finds ``plotly/plotly.min.js``."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = str(bundle()) if path == f"plotly/{NAME}" else None
        return ([found] if found else []) if find_all else found

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        storage = FileSystemStorage(location=bundle().parent)
        storage.prefix = "plotly"  # type: ignore[attr-defined]
        yield NAME, storage
