"""Run pages of every shape of serving policy: phases, deployments, a shared device, a torus, a cut model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.spec import load_spec
from experiments.run import run
from tests.experiments.contracts.test_determinism import SPLIT, TWO_NODES
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import finished_run, make_cast
from webapp.runs.services import hardware_label

#: What the first sentence of a page says.
FOUND = {
    **dict.fromkeys(("distserve", "splitwise"), "with a first token within"),
    **dict.fromkeys(("alpaserve", "nexus", "clockwork"), "in time, on"),
    **dict.fromkeys(("reef", "pipeswitch"), "Sharing makes them"),
    "palm_partitioning": "of peak FLOP/s",
    "walle": "All on the device would take",
}


POD = {"cluster": {"nodes": 16, "devices_per_node": 4, "device": "tpu-v4"}}
#: Ways of a policy that its default does not go.
KNOBS = {"clockwork": {"control": "controller"}}
#: What stands on the pages besides: where weights lie, models by their names in a figure.
ALSO = {
    "palm_partitioning": ("4 × 16 chips", "2,048 of 8,192 rows by", "computing or reading"),
    "alpaserve": ("slo attainment by model",),
}


def scenario() -> str:
    """Four models that together ask for most of two nodes."""
    models = [
        {"name": f"model {number}", "slo": 0.4, "rate": 12.0 * (number + 1), "latency": 0.05, "bytes": 4e9}
        for number in range(4)
    ]
    return json.dumps({"duration": 30, "models": models})


def two_models() -> str:
    """A model in real time, and one that fills the device."""
    layers = [{"seconds": 0.002 + 0.001 * (place % 3), "bytes": 4e6} for place in range(12)]
    asked = {"name": "asked", "slo": 0.1, "rate": 20, "class": "real_time", "layers": layers}
    filler = {"name": "filler", "rate": 0, "class": "best_effort", "layers": layers}
    return json.dumps({"duration": 1.0, "models": [asked, filler]})


def requests() -> str:
    draw = np.random.default_rng(7)
    arrival = np.cumsum(draw.exponential(0.1, 150))
    sizes = zip(draw.integers(50, 1500, 150), draw.integers(5, 150, 150), strict=True)
    rows = [f"{time:.4f},{prompt},{output}" for time, (prompt, output) in zip(arrival, sizes, strict=True)]
    return "arrival,prompt,output\n" + "\n".join(rows) + "\n"


def outcomes(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """By policy the hardware as pages name it and the outcome of a simulated run."""
    texts = {
        "requests.csv": requests(),
        "scenario.json": scenario(),
        "shared.json": two_models(),
        "split.json": SPLIT,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    served = {"source": str(folder / "requests.csv"), "options": {"model": "llama2-7b"}}
    many, one = {"source": str(folder / "scenario.json")}, {"source": str(folder / "shared.json")}
    cut, torus = {"source": str(folder / "split.json")}, {"source": "zoo:palm-62b", "options": {"batch": 8}}
    asked: dict[str, tuple[dict[str, Any], Any]] = {
        "distserve": (served, TWO_NODES),
        "splitwise": (served, TWO_NODES),
        "alpaserve": (many, TWO_NODES),
        "nexus": (many, TWO_NODES),
        "clockwork": (many, TWO_NODES),
        "reef": (one, "v100-16g"),
        "pipeswitch": (one, "v100-16g"),
        "palm_partitioning": (torus, POD),
        "walle": (cut, "cpu-generic"),
    }
    found = {}
    for policy, (workload, hardware) in asked.items():
        spec = {"family": "serving", "policy": policy, "workload": workload, "hardware": hardware}
        spec["knobs"] = KNOBS.get(policy, {})
        found[policy] = (hardware_label(hardware), run(load_spec(spec)).to_json())
    return found


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_every_shape_has_a_page_that_says_and_shows_its_answer(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    runs = {}
    for policy, (hardware, outcome) in outcomes(tmp_path).items():
        assert outcome["status"] == "ok", (policy, outcome)
        runs[policy] = finished_run(cast, outcome, hardware)
    with serving() as address, browser_page(width=1440) as page:
        enter(page, address, cast.vera)
        for policy, made in runs.items():
            page.goto(address + cast.url(f"runs/{made.pk}/"))
            page.wait_for_load_state("networkidle")
            assert serious(page) == [], policy
            text = page.inner_text("main")
            assert "rows [[" not in text, policy
            assert text.index(policy) < text.index(FOUND[policy]) < 400, (policy, text[:400])
            for words in ALSO.get(policy, ()):
                assert words in text, (policy, words)
            if folder := os.environ.get("LAB_SHOTS"):
                page.screenshot(path=f"{folder}/shape-{policy}.png", full_page=True)
