"""Padding never reaches a useful result: every graph here runs with NaN in its padding.

A case is a model of one input with an axis of any size; it is called at sizes that are padded to 8 and
compared with itself at the size as it is.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from experiments.compilation.live.backends.padding import Bucketed, Masker  # noqa: E402
from experiments.compilation.live.backends.sizes import AUTOMATIC, STATIC, graphs_by_size  # noqa: E402
from experiments.compilation.live.export import export, records  # noqa: E402
from experiments.compilation.live.padding.padding import Padding, padding  # noqa: E402
from experiments.compilation.live.padding.padding_rules import RULES  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


def rows(size: int) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(size)) * 3 + 1


def tokens(size: int) -> Tensor:
    return torch.randn(2, size, 4, generator=torch.Generator().manual_seed(size))


def heads(size: int) -> Tensor:
    return torch.randn(2, 3, size, 4, generator=torch.Generator().manual_seed(size))


def pictures(size: int) -> Tensor:
    return torch.randn(size, 3, 4, 4, generator=torch.Generator().manual_seed(size)) * 3 + 1


def plan(module: nn.Module, batch: Callable[[int], Tensor]) -> Padding:
    graphs = (records(export(module, (batch(size),))) for size in (3, 5))
    return padding(*graphs, (3, 5), RULES)


def bucketed(module: nn.Module, batch: Callable[[int], Tensor], found: Padding) -> Bucketed:
    def at(bucket: int) -> Callable[..., Any]:
        return Masker(export(module, (batch(bucket),)), found, bucket, "cpu").run()

    return Bucketed((8,), found, "cpu", at, fill=torch.nan)


KEPT: dict[str, tuple[nn.Module, Callable[[int], Tensor], dict[str, int]]] = {
    "softmax over rows": (Calls(lambda x: torch.softmax(x, 0)), rows, {"masks": 1}),
    "mean of rows": (Calls(lambda x: x.mean(0)), rows, {"masks": 1, "means": 1}),
    "mean of all": (Calls(lambda x: (x * 2).mean()), rows, {"masks": 1, "means": 1}),
    "merged with the batch": (
        Calls(lambda x: x.reshape(-1, 4).mean(0)),
        tokens,
        {"masks": 1, "means": 1},
    ),
    "largest": (Calls(lambda x: x.max(0).values), rows, {"masks": 1}),
    "attention by hand": (
        Calls(lambda x: torch.softmax(x @ x.transpose(1, 2), -1) @ x),
        tokens,
        {"masks": 3},
    ),
    "attention": (Calls(lambda x: F.scaled_dot_product_attention(x, x, x)), heads, {"masks": 2, "keys": 1}),
    "causal attention": (
        Calls(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
        heads,
        {"masks": 2},
    ),
    "the first token": (Calls(lambda x: x[:, 0]), tokens, {}),
    "norm of each row": (nn.LayerNorm(4), rows, {}),
}


@pytest.mark.parametrize("name", KEPT)
def test_nan_in_the_padding_is_not_seen(name: str) -> None:
    module, batch, needed = KEPT[name]
    found = plan(module.eval(), batch)
    for what in ("masks", "means", "keys", "statistics"):
        assert len(getattr(found, what)) == needed.get(what, 0), what
    call = bucketed(module, batch, found)
    for size in (3, 7, 8):
        truth = module(batch(size))
        assert torch.allclose(call(batch(size))[0], truth, rtol=1e-5, atol=1e-6), size


def test_without_its_mask_the_nan_is_everywhere() -> None:
    """The control of the test above."""
    module = Calls(lambda x: torch.softmax(x, 0)).eval()
    found = plan(module, rows)
    bare = Padding(found.inputs, found.outputs)
    assert bucketed(module, rows, bare)(rows(3))[0].isnan().all()


@pytest.mark.parametrize(("norm", "batch"), [(nn.BatchNorm1d(4), rows), (nn.BatchNorm2d(3), pictures)])
def test_a_batch_norm_in_training_takes_its_statistics_from_useful_rows(
    norm: nn.Module, batch: Callable[[int], Tensor]
) -> None:
    ours, truth = copy.deepcopy(norm).train(), copy.deepcopy(norm).train()
    found = plan(copy.deepcopy(ours), batch)
    assert len(found.statistics) == 1
    call = bucketed(ours, batch, found)
    for size in (3, 6):
        x = batch(size)
        assert torch.allclose(call(x)[0], truth(x), rtol=1e-5, atol=1e-5)
    for name, value in truth.state_dict().items():
        assert torch.allclose(ours.state_dict()[name].float(), value.float(), rtol=1e-5), name


REFUSED: dict[str, tuple[nn.Module, Callable[[int], Tensor], str]] = {
    "variance": (Calls(lambda x: x.var(0)), rows, r"var.*what the op does to single entries is not known"),
    "the last token": (Calls(lambda x: x[:, -1]), tokens, r"select.*entry -1 may be padding"),
    "convolution along it": (nn.Conv1d(2, 2, 3), lambda n: torch.ones(1, 2, n + 4)[:, :, :n], "neighbors"),
    "divided by its size": (Calls(lambda x: x / x.shape[0]), rows, r"div.*depends on the size"),
    "reversed": (Calls(lambda x: x.flip(0)), rows, "flip"),
    "normalized along it": (
        Calls(lambda x: F.layer_norm(x.transpose(0, 1).contiguous(), x.shape[:1])),
        rows,
        "layer_norm",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_masked_is_refused_with_its_op(name: str) -> None:
    module, batch, reason = REFUSED[name]
    with pytest.raises(Infeasible, match=reason):
        plan(module.eval(), batch)


def test_sizes_1_to_64_are_64_graphs_2_graphs_or_7() -> None:
    """Static sizes, a symbol from the second size on, and buckets; recompiles name the guard."""
    module = Calls(lambda x: x * 2).eval()

    def batch(size: int) -> tuple[Tensor, ...]:
        return (rows(size),)

    sizes = range(1, 65)
    static, counts = graphs_by_size(module, batch, sizes, STATIC)
    assert (static[0], static[-1]) == (1, 64)
    assert len(counts.recompiles) == 63
    automatic, counts = graphs_by_size(module, batch, sizes, AUTOMATIC)
    assert automatic == [1, *[2] * 63]
    assert "size mismatch at index 0. expected 1, actual 2" in counts.recompiles[0].guard
    masked = Masker(export(module, batch(8)), plan(module, rows), 8, "cpu").run()
    buckets, _ = graphs_by_size(masked, lambda n: (torch.tensor(n), rows(8)), range(5, 9), STATIC)
    assert buckets == [1, 1, 1, 1], "one graph for every size of a bucket"


@pytest.mark.slow
def test_a_model_in_buckets_from_spec_to_outcome() -> None:
    spec = {
        "family": "compilation",
        "policy": "shape_buckets",
        "workload": {"source": "zoo:mlp", "options": {"batch": 3}},
        "knobs": {"sizes": "2-4"},
        "hardware": "local",
        "mode": "measured",
    }
    found = run(load_spec(spec))
    assert found.status == "ok", found.reason
    assert found.metrics["graphs"]["value"] == 2
    assert found.metrics["padding_waste"]["value"] == (2 + 4 + 4 - 9) / 9
    assert found.plan["report"]["graphs"] == {"static": 3, "automatic": 2, "buckets": 2}
    assert found.plan["report"]["proof"]["sizes"] == [3]
    assert found.series["graphs"]["y"] == [1, 2, 2]
    assert found.series["latency"]["x"] == [2, 3, 4]
