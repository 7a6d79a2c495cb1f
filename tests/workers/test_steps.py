"""The dear part on its own: a model's step captured, and profiled, by the real program inside the best
sandbox here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.webapp.cast import Cast, make_cast, ready
from webapp.artifacts.laws import lacks_law, law_for
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import add_zoo
from webapp.artifacts.step_options import spell_out_options
from webapp.runs import derivation
from webapp.runs.models import Run
from workers import files, sandbox
from workers.assignment import Waits, assign, torch_version
from workers.dispatcher import register
from workers.gpu import Device
from workers.supervisor import Supervisor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.torch]
OPTIONS = {"batch": 4}
NODE = {"cluster": {"nodes": 1, "devices_per_node": 2, "device": "v100"}}
CPU = Device("cpu", "some processor", 2**30)


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


def carry_out(run: Run) -> Run:
    """By one slot in this process; the trial is a process of its own in its cell."""
    host = register(1, [CPU])
    slot = Supervisor(host, [CPU], sandbox.best_tier(), 2**32, threads=1)
    assert slot.carry_out_one()
    run.refresh_from_db()
    assert (run.state, run.reason) == ("succeeded", "")
    assert run.sandbox_tier == sandbox.best_tier()
    return run


def arrays_of(step: Artifact) -> dict[str, Any]:
    assert step.blob is not None
    with np.load(files.local(step.blob)) as archive:
        return dict(archive)


def test_a_step_is_captured_once_and_found_under_its_key(cast: Cast) -> None:
    model = ready(cast.project, name="mlp")
    key = derivation.derive_key(Run.Kind.CAPTURE, OPTIONS, torch_version())
    asked = derivation.capture_of(model, OPTIONS, key)
    assert derivation.capture_of(model, OPTIONS, key) == asked
    carry_out(asked)
    step = derivation.ready_step(model, key)
    assert step is not None
    assert (step.kind, step.name, step.parent) == ("step", "mlp (captured step)", model)
    assert step.summary["options"] == OPTIONS
    assert step.summary["facts"]["timing"] != "measured"
    assert len(arrays_of(step)) > 0
    # What waits for the step goes on with it; how its memory goes with the batch is another run's work.
    assert lacks_law(model, {"batch": 8})
    captured = step.blob_id
    [law] = Run.objects.filter(kind=Run.Kind.CAPTURE, state=Run.State.QUEUED)
    assert law.priority < asked.priority
    carry_out(law)
    with_sgd = {"batch": 8, "optimizer": "sgd"}
    [forms] = Run.objects.filter(state=Run.State.QUEUED)
    assert forms.priority < law.priority
    assert not law_for(model, with_sgd).is_awaited  # whoever needs it now asks for it
    Run.objects.filter(pk=forms.pk).update(state=Run.State.RUNNING)
    assert law_for(model, with_sgd).is_awaited
    Run.objects.filter(pk=forms.pk).update(state=Run.State.QUEUED)
    carry_out(forms)
    assert not Run.objects.filter(state=Run.State.QUEUED).exists()
    [step] = model.derived.all()
    assert step.blob_id == captured
    assert any(plot["title"].startswith("Memory where a step needs most") for plot in step.summary["plots"])
    peak = next(row["value"] for row in step.summary["cards"] if row["label"] == "live peak")
    found = law_for(model, {"batch": 8})
    assert found.law is not None and found.law.peak(OPTIONS["batch"]) == peak
    assert lacks_law(model, {"batch": 8, "dtype": "float64"})


def test_a_model_is_captured_as_soon_as_it_was_read(cast: Cast, settings: Any) -> None:
    """With the options that its runs will have, so that they find the step under their key."""
    settings.CAPTURE_AT_ONCE, settings.IDLE_SECONDS = True, 30
    model = add_zoo(cast.project, cast.max, "mlp")
    host = register(1, [CPU])
    slot = Supervisor(host, [CPU], sandbox.best_tier(), 2**32, threads=1)
    assert slot.carry_out_one()
    [first] = Run.objects.filter(kind=Run.Kind.CAPTURE)
    key = first.spec["derive_key"]
    assert derivation.capture_of(model, first.spec["workload"]["options"], key) == first
    assert slot.carry_out_one()  # the step with its law
    assert not slot.carry_out_one()  # its other forms are left for who asks for something else
    settings.IDLE_SECONDS = 0
    Run.objects.update(not_before=None)
    assert slot.carry_out_one()
    [second] = Run.objects.filter(state=Run.State.QUEUED)
    assert second.priority < 0
    Run.objects.filter(pk=second.pk).update(state=Run.State.RUNNING)
    options, key = second.spec["workload"]["options"], second.spec["derive_key"]
    assert derivation.capture_of(model, options, key) == second  # it is being made already
    Run.objects.filter(pk=second.pk).update(state=Run.State.QUEUED)
    assert slot.drain() == 2
    model.refresh_from_db()
    assert sum(one["parameters"] for one in model.summary["parameters"]) == 669_706
    options = derivation.step_options(spell_out_options(model, {}))
    key = derivation.derive_key(Run.Kind.CAPTURE, options, torch_version())
    assert derivation.ready_step(model, key) is not None
    for precision in ("fp32", "bf16-mixed"):
        of_step = derivation.step_options(spell_out_options(model, {"precision": precision}))
        assert not lacks_law(model, of_step)
        assert law_for(model, {**of_step, "optimizer": "sgd"}).is_composed


def test_a_step_is_profiled_on_the_device_that_the_run_needs(cast: Cast) -> None:
    model = ready(cast.project, name="mlp")
    asked = Run.objects.create(
        project=cast.project, artifact=model, kind=Run.Kind.PROFILE, needs="cpu",
        spec={"workload": {"options": OPTIONS}},
    )  # fmt: skip
    done = carry_out(asked)
    assert done.progress == 1.0
    [step] = model.derived.all()
    assert step.name == "mlp (profiled step)"
    assert step.summary["facts"]["timing"] == "measured"
    assert derivation.measured_step(model, OPTIONS, "cpu-generic") == step


@pytest.mark.parametrize(
    ("policy", "model", "hardware", "captured"),
    [
        (("compilation", "taso"), "mlp", "v100", False),
        (("compilation", "roller"), "mlp", "v100", False),
        (("compilation", "rammer"), "mlp", "v100", False),
        (("parallel", "megatron"), "gpt2", NODE, False),
        (("memory", "swap_all"), "mlp", "v100", True),
        (("parallel", "data_parallel"), "mlp", NODE, True),
        (("parallel", "zero"), "mlp", NODE, True),
    ],
)
def test_a_policy_gets_the_model_where_it_asks_for_it_and_else_its_step(
    cast: Cast, tmp_path: Path, policy: tuple[str, str], model: str, hardware: Any, captured: bool
) -> None:
    artifact = ready(cast.project, name=model)
    family, name = policy
    spec = {
        "family": family, "policy": name, "knobs": {}, "mode": "simulated", "hardware": hardware, "seed": 0,
        "workload": {"source": f"zoo:{model}", "options": {"batch": 4}},
    }  # fmt: skip
    run = Run.objects.create(
        project=cast.project, artifact=artifact, kind=Run.Kind.POLICY, family=family, policy=name,
        mode="simulated", spec=spec,
    )  # fmt: skip
    found = assign(run, tmp_path, 2**32)
    assert isinstance(found, Waits) == captured
    if not captured and model == "mlp":
        assert carry_out(run).state == "succeeded"


def test_a_finished_run_says_what_training_keeps_for_a_parameter(cast: Cast) -> None:
    artifact = ready(cast.project, name="mlp")
    spec = {
        "family": "memory", "policy": "baseline", "knobs": {}, "mode": "simulated", "hardware": "v100",
        "seed": 0, "workload": {"source": "zoo:mlp", "options": {"batch": 4, "optimizer": "adam"}},
    }  # fmt: skip
    run = Run.objects.create(
        project=cast.project, artifact=artifact, kind=Run.Kind.POLICY, family="memory", policy="baseline",
        mode="simulated", spec=spec,
    )  # fmt: skip
    slot = Supervisor(register(1, [CPU]), [CPU], sandbox.best_tier(), 2**32, threads=1)
    while run.state not in Run.FINAL:  # the law of its step is another test's
        assert slot.carry_out_one()
        run.refresh_from_db()
    assert (run.state, run.outcome_status) == ("succeeded", "ok")
    assert run.model_states == ("4 weights + 4 gradients + 8 optimizer state = 16 bytes a parameter (fp32)")


def test_a_model_that_is_not_there_ends_rejected_and_leaves_no_step(cast: Cast) -> None:
    model = ready(cast.project, name="no-such-model")
    key = derivation.derive_key(Run.Kind.CAPTURE, OPTIONS, torch_version())
    asked = derivation.capture_of(model, OPTIONS, key)
    host = register(1, [])
    Supervisor(host, [], sandbox.best_tier(), 2**32, threads=1).drain()
    asked.refresh_from_db()
    assert asked.state == Run.State.REJECTED
    assert "no-such-model" in asked.reason
    assert not model.derived.exists()
