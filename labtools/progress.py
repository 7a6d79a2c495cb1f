"""A progress line: rewritten in place on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

PLAIN_LINE_EVERY = 15  # seconds


class ProgressLine:
    """Shows one changing line; `close` leaves the last one standing."""

    def __init__(self, output: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output or sys.stdout
        self._clock = clock
        self._in_place = self._output.isatty()
        self._last_plain = float("-inf")
        self._shown = ""

    def show(self, text: str, *, final: bool = False) -> None:
        if text == self._shown:
            return
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            self._output.write(f"\r\033[K{text[:width]}")
        elif final or self._clock() - self._last_plain >= PLAIN_LINE_EVERY:
            self._output.write(f"{text}\n")
            self._last_plain = self._clock()
        self._shown = text
        self._output.flush()

    def close(self, text: str) -> None:
        self.show(text, final=True)
        if self._in_place:
            self._output.write("\n")
            self._output.flush()


class PipProgress:
    """What pip has done so far, read from its output line by line.

    pip says nothing while it unpacks, so then the packages that have appeared in `site_packages` are counted.
    """

    def __init__(self, site_packages: Callable[[], Path | None], clock: Callable[[], float] = time.monotonic):
        self._site_packages = site_packages
        self._clock = clock
        self._began = clock()
        self._collected: set[str] = set()
        self._fetching = ""
        self._to_write = 0
        self._present_before = 0

    def read(self, line: str) -> None:
        if name := re.match(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)", line):
            self._collected.add(re.sub(r"[-_.]+", "-", name[1]).lower())
        elif wheel := re.match(r"\s+Downloading (?:\S*/)?([^\s/]+?)-\d\S* \(([\d.]+ [kMG]?B)\)", line):
            self._fetching = f", fetching {wheel[1]} ({wheel[2]})"
        elif line.startswith("Installing collected packages: "):
            self._to_write = len(line.split(":", 1)[1].split(","))
            self._present_before = self._present()

    def describe(self) -> str:
        seconds = round(self._clock() - self._began)
        if self._to_write:
            written = min(self._present() - self._present_before, self._to_write)
            return f"Installing packages: {written} of {self._to_write} written · {seconds} s"
        return f"Installing packages: {len(self._collected)} collected{self._fetching} · {seconds} s"

    def summary(self) -> str:
        seconds = round(self._clock() - self._began)
        if not self._to_write:
            return f"Installed packages: nothing to do, {len(self._collected)} are there · {seconds} s"
        return f"Installed packages: {self._to_write} of {self._to_write} · {seconds} s"

    def _present(self) -> int:
        folder = self._site_packages()
        return sum(1 for _ in folder.glob("*.dist-info")) if folder else 0
