"""What PyTorch's dashboard would call the end of a compiled model, next to our own verdict."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.compilation.experiment.trials import dashboard_status_of, failure_of  # noqa: E402
from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.verify import UNSTEADY, Verification, verify  # noqa: E402
from experiments.core.dashboard import MEANINGS, dashboard_status  # noqa: E402
from tests.experiments.compilation.graphs import module_of  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.tensor([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]])


def judged(module: Callable[..., Any], candidate: Callable[..., Any]) -> Verification:
    module = module if isinstance(module, nn.Module) else module_of(module)
    return verify(Task(module, (X,), "cpu"), Compiled(candidate, 0.0, 0.0), 0)


def out_of_memory(x: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory")


def refuse(x: Tensor) -> Tensor:
    raise RuntimeError("unknown operator")


CALLS = itertools.count()


def jitter(x: Tensor) -> Tensor:
    """Depends on something that no seed of torch's reaches, in the last bits of what it gives."""
    return x * (1 + 1e-6 * (next(CALLS) % 3))


def leap(x: Tensor) -> Tensor:
    """Depends on it so as to be far from itself."""
    return x * (1 + next(CALLS))


@pytest.mark.parametrize(
    ("module", "candidate", "ours", "status"),
    [
        (torch.relu, torch.relu, True, "pass"),
        (torch.relu, torch.abs, False, "fail_accuracy"),
        (torch.relu, refuse, False, "fail_to_run"),
        (torch.relu, out_of_memory, False, "OOM"),
        (refuse, torch.relu, False, "eager_1st_run_fail"),
        (out_of_memory, torch.relu, False, "eager_1st_run_OOM"),
        (jitter, lambda x: x, True, "eager_two_runs_differ"),
        (jitter, torch.relu, False, "eager_two_runs_differ"),
    ],
)
def test_the_first_step_that_goes_wrong_names_the_status(
    module: Callable[..., Any], candidate: Callable[..., Any], ours: bool, status: str
) -> None:
    """Two runs of eager may differ in bits where ours judges that the candidate is right."""
    found = judged(module, candidate)
    assert (found.ok, dashboard_status_of(found)) == (ours, status)
    assert status in MEANINGS


def test_where_eager_is_as_far_from_itself_nothing_can_be_compared() -> None:
    found = judged(leap, torch.abs)
    assert (found.counterexample, found.comparable) == (UNSTEADY, False)
    wrong = judged(jitter, torch.abs)
    assert wrong.comparable and "element" in wrong.counterexample, "bits of eager excuse no wrong sign"


def test_a_second_run_of_eager_that_fails_says_so() -> None:
    class OnlyOnce(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return refuse(x) if self.calls > 1 else x

    assert dashboard_status_of(judged(OnlyOnce(), torch.relu)) == "eager_2nd_run_fail"


def test_what_cannot_be_compiled_failed_to_run_and_a_simulated_run_has_no_status() -> None:
    failed = failure_of(RuntimeError("no kernel"), "", out_of_memory=False)
    assert (failed.status, dashboard_status(failed.notes)) == ("failed", "fail_to_run")
    assert dashboard_status(failure_of(RuntimeError("full"), "", out_of_memory=True).notes) == "OOM"
    assert dashboard_status({}) == dashboard_status({"compilation": {"training": False}}) == ""
    imported = {"compilation": {"dashboard_status": "x" * 1000}}
    assert dashboard_status(imported) == "", "an outcome from elsewhere may tell anything"
