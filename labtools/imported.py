"""Runs of other trackers on their way into the lab: names that a search can say, and each log sent once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import UUID

from experiments.client.log_file import LogFile
from experiments.client.own_run import LONGEST_FIGURE
from experiments.client.sender import Transfer
from experiments.client.server import LabError, Server

#: Trackers write infinities as the largest number.
LARGEST = 1.797e308


def send(server: Server, folder: Path, run: UUID, name: str, records: Sequence[Any]) -> None:
    """Store a run's records in the lab, once however often."""
    log = LogFile.create(folder, run, server.url, server.project)
    try:
        for record in records:
            log.write(record)
        Transfer(server, log).send_rest()
    except LabError as error:
        raise LabError(f"run {run} ({name}): {error.args[0]}", error.remedy) from error
    finally:
        log.close()
        log.remove()


def one_line(text: str, longest: int) -> str:
    """On one line, short enough for its place."""
    shown = "".join(one if one.isprintable() else " " for one in text).strip()
    return shown[:longest] or "unnamed"


def figure_names(keys: set[str]) -> dict[str, str]:
    """Names of figures that a search can say, each used once."""
    found: dict[str, str] = {}
    for key in sorted(keys):
        shown = "".join(one for one in key if one.isprintable())
        name = re.sub(r'[\s()<>=!,:"]', "_", shown)[-LONGEST_FIGURE:] or "_"
        numbered = (f"{name[: LONGEST_FIGURE - 8]}~{number}" for number in count(2))
        found[key] = next(one for one in chain([name], numbered) if one not in found.values())
    return found


def plain_value(value: float) -> float | str:
    """As a log has it: what is no finite number in words."""
    if math.isnan(value):
        return "nan"
    return value if abs(value) < LARGEST else "inf" if value > 0 else "-inf"
