"""An uploaded ONNX file or program of torch.export goes the whole way: read, captured, simulated and
measured, confined.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from tests.hostile_files import onnx_model, pt2
from tests.webapp.cast import Cast, make_cast
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run
from workers import sandbox
from workers.dispatcher import register
from workers.gpu import Device
from workers.supervisor import Supervisor

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
CPU = Device("cpu", "some processor", 2**30)


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def asked(cast: Cast, model: Artifact, policy: str, mode: str, batch: int) -> Run:
    spec = {
        "family": "memory",
        "policy": policy,
        "knobs": {},
        "workload": {"source": f"artifact:{model.pk}", "format": "auto", "options": {"batch": batch}},
        "hardware": "local" if mode == "measured" else "a100-40g",
        "mode": mode,
        "seed": 0,
    }
    same = {name: spec[name] for name in ("family", "policy", "mode", "seed")}
    needs = "cpu" if mode == "measured" else ""
    return Run.objects.create(project=cast.project, artifact=model, spec=spec, needs=needs, **same)


@pytest.mark.parametrize(
    ("name", "make", "batch"), [("product.onnx", onnx_model(), 4), ("program.pt2", pt2(), 2)]
)
def test_an_exported_model_is_simulated_and_measured(
    cast: Cast, name: str, make: Callable[[], bytes], batch: int
) -> None:
    """A product with six weights: 24 bytes of them and the batch are always there; both modes agree on the
    peak.
    """
    model = store_upload(cast.project, cast.max, name, ContentFile(make()))
    runs = [
        asked(cast, model, "baseline", "simulated", batch),
        asked(cast, model, "vdnn-all", "simulated", batch),
        asked(cast, model, "vdnn-all", "measured", batch),
    ]
    slot = Supervisor(register(1, [CPU]), [CPU], sandbox.best_tier(), 2**32, threads=1)
    while any(Run.objects.filter(pk=run.pk).exclude(state__in=Run.FINAL).exists() for run in runs):
        assert slot.carry_out_one()
    model.refresh_from_db()
    assert (model.kind, model.format, model.state) == ("model", name.rpartition(".")[2], "ready")
    for run in runs:
        run.refresh_from_db()
        assert (run.state, run.reason) == ("succeeded", "")
    peaks = [run.document.outcome["metrics"]["peak_memory"]["value"] for run in runs]
    assert abs(peaks[2] - peaks[1]) <= 64
    assert peaks[0] >= 24 + batch * 3 * 4
