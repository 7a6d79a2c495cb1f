"""How many graphs a model at many sizes becomes, counted with Dynamo alone; pieces between cuts hold for any
size.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from experiments.compilation.live.backends import Task  # noqa: E402
from experiments.compilation.live.backends.guards import open_axes, run_sizes  # noqa: E402
from experiments.compilation.live.backends.piecewise import pieces  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


def rows(size: int) -> tuple[Tensor, ...]:
    return (torch.ones(size, 4),)


def grown(body: Callable[..., Any], sizes: Sequence[int], variant: str, limit: int = 256) -> list[int]:
    task = Task(Calls(body).eval(), rows(2), "cpu")
    return run_sizes(task, rows, open_axes(rows), sizes, variant, "eager", limit)[1]


@pytest.mark.parametrize(
    ("variant", "sizes", "graphs"),
    [
        ("static", range(1, 9), 8),
        ("automatic", range(1, 65), 2),
        ("symbolic", range(1, 65), 2),
        ("marked", range(1, 65), 2),
        ("marked", range(2, 65), 1),
        ("piecewise", range(2, 65), 1),
        ("automatic", (2, 3, 4, 5, 1, 0), 4),
    ],
)
def test_graphs_of_a_series_of_sizes(variant: str, sizes: Sequence[int], graphs: int) -> None:
    """Sizes 0 and 1 are compiled for themselves; automatic sizes cost one static graph before the symbol."""
    assert grown(lambda x: x * 2, sizes, variant)[-1] == graphs


def test_a_branch_on_the_size_is_a_guard_of_the_symbol() -> None:
    assert grown(lambda x: x * 2 if x.shape[0] > 4 else x - 1, (2, 3, 4, 5, 6), "symbolic") == [1, 1, 1, 2, 2]


def test_beyond_the_limit_a_function_runs_eagerly() -> None:
    assert grown(lambda x: x * 2, range(2, 14), "static", limit=8) == [*range(1, 9), 8, 8, 8, 8]


def test_attention_is_cut_out_and_the_pieces_hold_for_any_size() -> None:
    module = Calls(lambda x: F.scaled_dot_product_attention(x + 1, x, x * 2).relu() + x.shape[1]).eval()

    def heads(size: int) -> tuple[Tensor, ...]:
        return (torch.randn(2, size, 4, generator=torch.Generator().manual_seed(size)),)

    axes = open_axes(heads)
    assert axes == {0: (1,)}
    found = pieces(module, heads, axes, "eager")
    assert (found.compiled, found.eager) == (2, ("aten.scaled_dot_product_attention.default",))
    for size in (1, 2, 7):
        (ours,) = found.call(*heads(size))
        assert torch.equal(ours, module(*heads(size)))


@pytest.mark.slow
def test_a_model_compiled_as_sizes_come_from_spec_to_outcome() -> None:
    spec = {
        "family": "compilation",
        "policy": "guards",
        "workload": {"source": "zoo:mlp", "options": {"batch": 3}},
        "knobs": {"sizes": "2-4", "variant": "marked"},
        "hardware": "local",
        "mode": "measured",
    }
    found = run(load_spec(spec))
    assert found.status == "ok", found.reason
    assert found.plan["report"]["graphs_of_variants"] == {
        "static": 3,
        "automatic": 2,
        "symbolic": 1,
        "marked": 1,
    }
    assert found.metrics["recompiles"]["value"] == 0
    assert found.series["graphs"]["y"] == [1, 1, 1]
    assert found.provenance["compilation"]["inputs_compared"] == 6 + 3
