"""Logs of own runs, as programs write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from experiments.client.shown import picture_bytes
from webapp.accounts.models import Project, User
from webapp.logged.models import LoggedRun
from webapp.logged.services import Place, append

STARTED = 1_790_000_000.0
#: Three rows of two points each.
GRAY = [[0, 128], [255, 64], [1, 2]]


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def beginning(name: str = "resnet", **more: Any) -> dict[str, Any]:
    return {"begin": {"name": name, "started": STARTED, **more}}


def ending(state: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {"end": {"state": state, "at": STARTED + 60, **more}}


def image(name: str, step: int, rows: Any = GRAY) -> dict[str, Any]:
    data = base64.b64encode(picture_bytes(rows)).decode()
    return {"image": {"name": name, "step": step, "data": data}}


def falling(steps: int = 50, start: float = 2.0, name: str = "train/loss") -> list[Any]:
    return [[step, STARTED + step, {name: start / (1 + step)}] for step in range(steps)]


def log(project: Project, owner: User, name: str, points: Sequence[Any] = (), **more: Any) -> LoggedRun:
    """A run that somebody's program logged to its end."""
    told = points or falling()
    return log_lines(project, owner, beginning(name, **more), *told, ending())


def log_lines(project: Project, owner: User, *records: Any) -> LoggedRun:
    """A run whose log has just these records so far."""
    place = Place(project.team_id, owner, lambda: project)
    return LoggedRun.objects.get(pk=append(place, uuid4(), 0, lines(*records)).run)
