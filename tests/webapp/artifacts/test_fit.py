"""The answer on a model's page: what a step needs, and which devices hold it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.core.units import GIB
from experiments.summaries.composed_law import ComposedLaw, UpdateMemory
from experiments.summaries.memory_law import TERMS, MemoryLaw
from experiments.summaries.training_memory import PARTS
from tests.webapp.cast import Cast, experiment_with, ready, run_in, signed_in
from webapp.artifacts import fit
from webapp.artifacts.models import Artifact
from webapp.runs import derivation
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
OPTIONS = {"batch": 8, "sequence": 1024, "dtype": "bfloat16", "precision": "bf16-mixed", "optimizer": "adamw"}
PARAMETERS = [
    {"module": "token embedding", "times": 1, "parameters": 400_000_000},
    {"module": "attention", "times": 10, "parameters": 600_000_000},
]


def law() -> dict[str, Any]:
    """16 GiB that stay and 2 GiB for each sample of 1,024 tokens; the largest op needs 1 GiB a sample.

    With sgd 2 GiB stay, and its update needs no more than the passes.
    """
    peaks, needs = np.zeros((1, len(PARTS), len(TERMS)), np.int64), np.zeros((1, len(TERMS)), np.int64)
    peaks[0, PARTS.index("optimizer state"), 0] = 16 * GIB
    peaks[0, PARTS.index("activations"), TERMS.index((1, 1))] = 16 * GIB
    needs[0, TERMS.index((1, 1))] = 8 * GIB
    found = MemoryLaw(8, 1024, peaks, needs)
    updates = {"bf16-mixed": {"sgd": UpdateMemory(2 * GIB, 0, 0, 0, 0, 0)}}
    composed = ComposedLaw(found, np.zeros(peaks.shape[1:], np.int64), updates)
    return {**found.to_json(), "composed": composed.to_json()}


def model(cast: Cast, law: dict[str, Any] | None = None, **summary: Any) -> Artifact:
    """A configuration; with a ``law`` its step is captured."""
    cards = [{"label": "model type", "value": "qwen2", "unit": ""}]
    told = {"cards": cards, "parameters": PARAMETERS, "usual_step": {**OPTIONS, "image": None}, **summary}
    told["usual_step"].pop("precision", None)
    found = ready(cast.project, zoo="", name="config.json", summary=told)
    if law is not None:
        captured = {"options": OPTIONS, "law": law}
        step = {"parent": found, "source": "derived", "derive_key": f"{found.pk}"}
        ready(cast.project, zoo="", kind="step", name="step", summary=captured, **step)
    return found


def row(answer: fit.Fit | None, device: str) -> fit.DeviceRow:
    assert answer is not None
    return next(row for row in answer.devices if row.name == device)


def test_each_device_holds_it_as_it_is_with_a_policy_or_not_at_all(cast: Cast) -> None:
    """32 GiB at batch 8: an A100 of 40 GiB as it is, 24 GiB with a policy. At batch 40 an op needs 40 GiB."""
    found = model(cast, law=law())
    answer = fit.fit_of(found, {})
    assert answer is not None and answer.peak == 32 * GIB
    assert row(answer, "a100-40g").words == "as it is, 8 GiB free"
    assert (row(answer, "rtx-4090-24g").state, row(answer, "rtx-4090-24g").over) == ("policy", 8 * GIB)
    large = fit.fit_of(found, {"option:batch": "40", "devices": "a100-80g"})
    assert (row(large, "rtx-4090-24g").state, row(large, "a100-80g").state) == ("never", "policy")


def test_the_page_says_it_in_a_sentence_and_moves_with_what_is_asked(cast: Cast) -> None:
    found, reader = model(cast, law=law()), signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "qwen2, 1 B parameters" in page
    assert "does not fit rtx-4090-24g as it is" in page
    moved = reader.get(
        cast.url(f"artifacts/{found.pk}/fit?option:batch=2&option:sequence=512")
    ).content.decode()
    assert "2 samples of 512 tokens" in moved
    assert "fits rtx-4090-24g as it is" in moved
    assert "18 GiB" in moved


@pytest.mark.parametrize(
    "asked",
    [{"option:batch": "0"}, {"option:batch": "-3"}, {"option:sequence": "x" * 99}, {"devices": "b9000"}],
)
def test_what_is_no_size_or_device_is_left_out(cast: Cast, asked: dict[str, str]) -> None:
    answer = fit.fit_of(model(cast, law=law()), asked)
    assert answer is not None and (answer.peak, answer.device) == (32 * GIB, fit.USUAL_DEVICE)


def test_before_the_capture_it_tells_model_states(cast: Cast) -> None:
    """16 bytes for each of 1 B parameters; why nothing more is known is said where it is so."""
    answer = fit.fit_of(model(cast), {})
    assert answer is not None and (answer.peak, answer.devices) == (16e9, ())
    page = signed_in(cast.max).get(cast.url(f"artifacts/{model(cast).pk}/")).content.decode()
    assert "is being captured" in page
    reason = model(cast, law={"reason": "runs other ops at half its size"})
    page = signed_in(cast.max).get(cast.url(f"artifacts/{reason.pk}/")).content.decode()
    assert "runs other ops at half its size" in page


def test_another_optimizer_follows_from_the_passes_of_a_captured_step(cast: Cast) -> None:
    """Of the 32 GiB with adamw 16 are optimizer state; sgd keeps 2."""
    found = model(cast, law=law())
    answer = fit.fit_of(found, {"option:optimizer": "sgd"})
    assert answer is not None and answer.peak == 18 * GIB
    assert answer.known.is_composed and answer.options["optimizer"] == "sgd"
    other = fit.fit_of(found, {"option:optimizer": "no such"})
    assert other is not None and other.peak == 32 * GIB and not other.known.is_composed
    page = signed_in(cast.max).get(cast.url(f"artifacts/{found.pk}/fit?option:optimizer=sgd"))
    assert "within 3 %" in page.content.decode()


def test_a_step_that_is_not_known_is_captured_once_for_whoever_may(cast: Cast) -> None:
    """In another type, or with adapters, the passes are others."""
    found, member = model(cast, law=law()), signed_in(cast.max)
    for asked in ("option:precision=fp32", "trained=QLoRA"):
        url = cast.url(f"artifacts/{found.pk}/")
        page = member.get(f"{url}fit?{asked}").content.decode()
        assert "is being captured" in page and 'hx-post="' in page
        for _ in range(2):
            answer = member.post(f"{url}capture?{asked}").content.decode()
            assert "hx-post" not in answer and "delay:1s" in answer
    first, second = [run.spec["workload"]["options"] for run in Run.objects.order_by("queued_at", "id")]
    assert (first["precision"], first["dtype"]) == ("fp32", "float32")
    assert (second["adapter"], second["base"], second["dtype"]) == ("lora", "nf4", "bfloat16")
    viewer = signed_in(cast.vera)
    assert "needs the role member" in viewer.get(f"{url}fit?trained=LoRA").content.decode()
    assert viewer.post(f"{url}capture?trained=LoRA").status_code == 403
    Run.objects.filter(spec__workload__options=second).update(state="failed", reason="no linear layer")
    assert "cannot be told" in member.get(f"{url}fit?trained=QLoRA").content.decode()


def test_all_policies_are_tried_with_just_the_options_chosen(cast: Cast) -> None:
    found = model(cast, law=law())
    asked = {
        **{"artifacts": found.pk, "devices": "rtx-4090-24g", "option:batch": "2", "option:sequence": "512"},
        **{"option:precision": "bf16-pure", "option:optimizer": "adamw8bit", "trained": "QLoRA"},
    }
    made = signed_in(cast.max).post(cast.url("experiments/new"), {**asked, "all": "memory"})
    assert made.status_code == 302
    run = Run.objects.filter(policy="baseline").get()
    chosen = {"batch": 2, "sequence": 512, "precision": "bf16-pure", "optimizer": "adamw8bit"}
    assert run.spec["workload"]["options"].items() >= {**chosen, "adapter": "lora", "base": "nf4"}.items()
    answer = fit.fit_of(found, {name: str(value) for name, value in asked.items()})
    assert answer is not None and answer.options == run.spec["workload"]["options"]
    assert "trained=QLoRA" in answer.address and "option%3Aoptimizer=adamw8bit" in answer.address


def test_policies_that_were_tried_are_counted(cast: Cast) -> None:
    found = model(cast, law=law())
    made = experiment_with(cast.project, found)
    on = {"options": OPTIONS, "hardware": "rtx-4090-24g"}
    run_in(made, found, "succeeded", policy="vdnn-all", **on)
    run_in(made, found, "infeasible", policy="baseline", **on)
    run_in(
        made, found, "succeeded", policy="vdnn-conv", options={**OPTIONS, "batch": 4}, hardware="rtx-4090-24g"
    )
    answer = fit.fit_of(found, {})
    assert answer is not None and (answer.fitting, answer.tried) == (1, 2)


def test_what_is_captured_without_being_asked_for(cast: Cast) -> None:
    assert derivation.is_worth_a_capture(model(cast))
    experts = [*PARAMETERS, {"module": "experts", "times": 8, "parameters": 1}]
    assert not derivation.is_worth_a_capture(model(cast, parameters=experts))
    assert not derivation.is_worth_a_capture(model(cast, parameters=[]))
    assert not derivation.is_worth_a_capture(
        ready(cast.project, name="blockdrop", summary={"parameters": PARAMETERS})
    )
    huge = [{"module": "MLP", "times": 1, "parameters": 405_000_000_000}]
    assert not derivation.is_worth_a_capture(model(cast, parameters=huge))
