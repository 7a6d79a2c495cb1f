"""Pages of own runs in a browser: drawn, readable by everybody, on a laptop and a phone."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.logged.logs import STARTED, beginning, log, log_lines

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MARKS = "document.querySelector('[data-plot]').querySelectorAll('.scatterlayer path.js-line').length"


def training_points(steps: int, rate: float) -> list[Any]:
    """A training that falls and shakes, with what else programs log."""
    return [
        [
            step,
            STARTED + 0.4 * step,
            {
                "train/loss": 2.5 * math.exp(-rate * step / 300) + 0.05 * math.sin(17.0 * step),
                "lr": 0.1 * (1 - step / steps),
                "memory/peak_memory": 6.0e9 + 1e6 * step,
                **({"val/loss": 2.6 * math.exp(-rate * step / 330) + 0.1} if step % 50 == 0 else {}),
            },
        ]
        for step in range(steps)
    ]


@pytest.mark.parametrize("width", variants(1440, 390))
def test_figures_are_drawn_and_runs_compared(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    there = cast.place("ada")
    environment = {"host": "gpu7", "python": "3.12.4", "command": "python train.py --lr 0.1"}
    made = [
        log(
            there.project,
            there.user,
            "resnet50",
            training_points(3000, rate),
            params={"lr": rate, "batch": 256, "optimizer.name": "sgd"},
            experiment="learning rates",
            tags=["paper"],
            hardware="NVIDIA H100 80GB HBM3",
            environment=environment,
            diff="--- a/train.py\n+++ b/train.py\n-lr = 0.1\n+lr = 0.2\n",
        )
        for rate in (0.1, 0.2, 0.4)
    ]
    started = beginning("resnet50", params={"lr": 0.8}, experiment="learning rates")
    log_lines(
        there.project, there.user, started, *training_points(200, 0.8), {"progress": [0.07, "epoch 3 of 40"]}
    )
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, there.user)
        for name, where, lines_of_loss in (
            ("own-run", f"own-runs/{made[1].pk}", 4),
            ("own-runs", f"own-runs/?experiment={made[0].run.experiment_id}", 14),
            ("own-runs-experiment", f"experiments/{made[0].run.experiment_id}/", 0),
        ):
            page.goto(address + there.url(where))
            if lines_of_loss:
                page.locator("path.js-line").first.wait_for(state="attached")
                assert page.evaluate(MARKS) == lines_of_loss
            assert serious(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if folder := os.environ.get("LAB_SHOTS"):
                for theme in ("light", "dark"):
                    page.emulate_media(color_scheme=theme)
                    page.wait_for_timeout(300)
                    page.screenshot(path=f"{folder}/{name}-{width}-{theme}.png", full_page=True)
