"""Building, exporting and comparing a model say that they go on, and can be left there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.exactness import exact_places  # noqa: E402
from experiments.compilation.live.export import export, records  # noqa: E402
from experiments.compilation.live.module_hooks import report_modules  # noqa: E402
from experiments.compilation.live.verify import unfriendly, verify  # noqa: E402
from tests.experiments.compilation.graphs import module_of  # noqa: E402

PARTS = 3
X = torch.ones(2, 4)


class Cancelled(Exception):
    pass


class Listener:
    """Counts reports; the one of number ``cancel_at`` cancels."""

    def __init__(self, cancel_at: int = -1) -> None:
        self.heard, self.cancel_at = 0, cancel_at

    def __call__(self, fraction: float, step: str) -> None:
        self.heard += 1
        if self.heard == self.cancel_at:
            raise Cancelled


def model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(PARTS))).eval()


def test_building_a_model_gives_a_sign_of_life_for_each_part() -> None:
    listener = Listener()
    with report_modules(listener):
        model()
    assert listener.heard == PARTS
    model()
    assert listener.heard == PARTS


def test_exporting_a_model_gives_a_sign_of_life_for_each_module_and_between_the_exporters_calls() -> None:
    listener = Listener()
    export(model(), (X,), progress=listener)
    assert listener.heard >= 1 + PARTS + 2


@pytest.mark.parametrize("number", [1, 3, 5, 6])
def test_an_export_can_be_cancelled_and_leaves_nothing_behind(number: int) -> None:
    with pytest.raises(Cancelled):
        export(model(), (X,), progress=Listener(number))
    assert len(records(export(model(), (X,))).ops) == PARTS


def test_comparing_with_eager_gives_a_sign_of_life_before_each_result_and_comparison() -> None:
    listener = Listener()
    module = model()
    task = Task(module, (X,), "cpu", progress=listener)
    assert verify(task, Compiled(module, 0.0, 0.0), 0).ok
    results, calls, comparison, copy, eager_twice = 3, 2 * (1 + PARTS), 1, 1, 2
    assert listener.heard == copy + eager_twice + len(unfriendly((X,), 0)) * (results + calls + comparison)


def test_comparing_on_whole_numbers_gives_a_sign_of_life_for_each_place() -> None:
    inputs = (X, torch.ones(4, 4), torch.ones(4, 4))
    before = records(export(module_of(lambda x, a, b: torch.relu(x @ a + x @ b)), inputs))
    after = records(export(module_of(lambda x, a, b: torch.relu(x @ b + x @ a)), inputs))
    listener = Listener()
    compared, _ = exact_places(before, after, "cpu", 0, listener)
    assert compared == listener.heard == 1
