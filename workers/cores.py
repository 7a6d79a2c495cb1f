"""Who is at work on this host's cores: a run that is measured on the processor has them for itself.

Such a run is claimed only while nothing else is measured here, and computes with all of them. What is
simulated or read meanwhile pauses, and no slot claims anything until it has ended. Runs measured on a GPU
share the cores with the other slots, each of which computes with as many threads as are its share.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from webapp.runs.lifecycle import Claim
from webapp.runs.models import Run

MEASURED = Q(kind=Run.Kind.PROFILE) | Q(mode="measured")
ON_THE_PROCESSOR = MEASURED & Q(needs="cpu")


@dataclass(eq=False)
class Tenant:
    """A run at work here, and which others were at work during any part of it."""

    claim: Claim
    load: float
    concurrent: list[Tenant] = field(default_factory=list)

    @property
    def is_measured(self) -> bool:
        return self.claim.run.kind == Run.Kind.PROFILE or self.claim.run.mode == "measured"

    @property
    def is_alone(self) -> bool:
        """Whether the host's cores are its own."""
        return self.is_measured and self.claim.run.needs == "cpu"

    @property
    def label(self) -> str:
        run = self.claim.run
        return run.policy or run.get_kind_display()

    def told(self) -> dict[str, Any]:
        """What a measured run's provenance says: the host's load before it, and what else was at work."""
        others = [f"{one.label} ({'paused' if self.is_alone else 'at work'})" for one in self.concurrent]
        return {"load_before": round(self.load, 2), "concurrent": others or ["nothing else of the lab"]}


class Cores:
    """Shared by the slots of a worker. ``freed`` is called when a run ends that had the cores for itself."""

    def __init__(self, freed: Callable[[], None] = lambda: None) -> None:
        self._freed = freed
        self._lock = threading.Lock()
        self._tenants: list[Tenant] = []

    @contextmanager
    def occupy(self, claim_next: Callable[[Q], Claim | None]) -> Iterator[Tenant | None]:
        """Claim a run with what may be taken now and be at work on it; ``None`` where there is none."""
        with self._lock:
            tenant = self._enter(claim_next)
        try:
            yield tenant
        finally:
            if tenant is not None:
                self._leave(tenant)

    def must_pause(self, tenant: Tenant) -> bool:
        return not tenant.is_measured and any(one.is_alone for one in self._tenants)

    def _enter(self, claim_next: Callable[[Q], Claim | None]) -> Tenant | None:
        if any(one.is_alone for one in self._tenants):
            return None
        claim = claim_next(~ON_THE_PROCESSOR if any(one.is_measured for one in self._tenants) else Q())
        if claim is None:
            return None
        tenant = Tenant(claim, os.getloadavg()[0], list(self._tenants))
        for one in self._tenants:
            one.concurrent.append(tenant)
        self._tenants = [*self._tenants, tenant]
        return tenant

    def _leave(self, tenant: Tenant) -> None:
        with self._lock:
            self._tenants = [one for one in self._tenants if one is not tenant]
        if tenant.is_alone:
            self._freed()
