"""Requests to the API, and what they bring."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from experiments.core import jsonio
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.api import services
from webapp.runs.models import Run

SPEC: dict[str, Any] = {
    "family": "memory",
    "policy": "baseline",
    "knobs": {},
    "workload": {"source": "zoo:gpt2", "options": {"batch": 8}},
    "hardware": "a100-40g",
}


class Caller:
    """Speaks to the API with a token; ``last`` is the status of the last answer."""

    def __init__(self, place: Place, role: str = Role.MEMBER) -> None:
        self.token, secret = services.make_token(place.project.team, place.user, "test", role)
        self.client = Client(headers={"authorization": f"Bearer {secret}"})
        self.last = 0

    def get(self, path: str) -> Any:
        return self._read(self.client.get(f"/api/v1{path}"))

    def post(self, path: str, body: Any) -> Any:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return self._read(self.client.post(f"/api/v1{path}", text, content_type="application/json"))

    def delete(self, path: str) -> Any:
        return self._read(self.client.delete(f"/api/v1{path}"))

    def _read(self, answer: Any) -> Any:
        self.last = answer.status_code
        return answer.json() if answer.content else None


def outcome_of(spec: dict[str, Any], status: str = "ok") -> dict[str, Any]:
    full = {**SPEC, "mode": "simulated", "seed": 0} | spec
    return {
        "spec": full,
        "spec_id": jsonio.digest(full),
        "status": status,
        "reason": None,
        "metrics": {"step_time": {"value": 0.5, "unit": "s", "lower_is_better": True}},
        "series": {"memory": {"unit": "bytes", "x": [0, 1], "y": [5, 6]}},
        "plan": {},
        "violations": [],
        "provenance": {"revision": "abc", "host": {"name": "gpu-7"}, "started": "2026-01-01"},
    }


def asked_runs() -> int:
    """Those that somebody submitted; a model's capture comes by itself."""
    return Run.objects.filter(kind=Run.Kind.POLICY).count()
