"""Changes that a comparison makes: pinning the baseline for everybody."""

from __future__ import annotations

from webapp.runs.models import Experiment, Run


def pin(experiment: Experiment, run: Run | None) -> None:
    """Makes ``run`` the baseline that everybody sees at first; ``None`` takes it away."""
    experiment.pinned = run
    experiment.save(update_fields=["pinned"])
