"""What the verbs share: JSON or text out, and which progress to show."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core import registry
from experiments.core.progress import Bar, JsonLines, Progress, silent
from experiments.core.whole_files import write_whole


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def progress_option(parser: argparse.ArgumentParser) -> None:
    choices = ("auto", "bar", "json", "none")
    parser.add_argument("--progress", choices=choices, default="auto", help="auto: a bar on a terminal")
    parser.add_argument("--progress-fd", type=int, default=2, help="file descriptor for --progress json")


def progress_of(arguments: argparse.Namespace) -> Progress:
    """Return what shows the command's progress; the descriptor stays open for another."""
    kind, number = arguments.progress, arguments.progress_fd
    if kind == "json":
        return JsonLines(sys.stderr if number == 2 else os.fdopen(number, "w", closefd=False))
    if kind == "bar" or (kind == "auto" and sys.stderr.isatty()):
        return Bar()
    return silent


def print_broken(family: str | None) -> None:
    """Say on stderr which systems of ``family``, or of all, cannot be used.

    Else what is listed would be taken for all.
    """
    for module in registry.broken_modules(family):
        print(f"broken: {module.file}: {module.why}", file=sys.stderr)


def write_json(value: Any, path: Path | None = None) -> None:
    """Print ``value``, or put it whole into ``path``."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if path is None:
        sys.stdout.write(text)
        return
    write_whole(path, text.encode())


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned by the widest cell, headings in capitals."""
    lines = [[h.upper() for h in headings], *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )
