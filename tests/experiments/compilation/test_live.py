"""Recipes carried out with torch, verified against eager in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.compilation.interface import Pass, Recipe
from experiments.compilation.live.export import export, records
from experiments.compilation.live.passes import apply
from experiments.compilation.live.runner import carry_out_live
from experiments.compilation.live.verify import verify
from experiments.compilation.policies.constant_folding import ConstantFolding
from experiments.compilation.policies.cse import Cse
from experiments.compilation.policies.dce import Dce
from experiments.compilation.policies.fuse_conv_bn import FuseConvBn
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.run import run

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Tensor) -> Any:
        return self.body(*inputs)


def outcome(policy: str, source: str = "zoo:resnet18", **options: Any) -> Any:
    workload = {"source": source, "options": options or {"batch": 1, "image": 32}}
    spec = {
        "family": "compilation",
        "policy": policy,
        "workload": workload,
        "hardware": "local",
        "mode": "measured",
    }
    return run(load_spec(spec))


def rewritten(module: nn.Module, policy: Any, *inputs: Tensor) -> tuple[Any, Any]:
    """The rewritten graph and its verification."""
    graph_module = export(module.eval(), inputs)
    for step in policy.recipe(records(graph_module)).passes:
        apply(graph_module, step)
    return graph_module, verify(module, graph_module, inputs, seed=0)


def targets(graph_module: Any) -> list[str]:
    return [node.target for node in records(graph_module).ops]


def test_resnet18_loses_its_twenty_batch_norms_and_keeps_its_output() -> None:
    before, after = outcome("eager"), outcome("fuse_conv_bn")
    assert after.status == "ok", after.reason
    assert after.metrics["rewrites"]["value"] == 20
    # A norm in the functional graph is two nodes: the op and the selection of its first result.
    assert before.metrics["ops"]["value"] - after.metrics["ops"]["value"] == 40
    assert after.metrics["max_abs_error"]["value"] < 1e-4


def test_folding_a_pair_by_hand() -> None:
    """1x1 convolution w=2, b=1 and norm gamma=8, beta=0.5, mean=4, var=9, eps=7: w'=4, b'=-5.5, f(1)=-1.5."""
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, eps=7.0)).eval()
    for tensor, value in zip(module.state_dict().values(), (2, 1, 8, 0.5, 4, 9), strict=False):
        tensor.fill_(value)
    graph_module, check = rewritten(module, FuseConvBn(), torch.ones(1, 1, 1, 1))
    assert graph_module(torch.ones(1, 1, 1, 1)).item() == -1.5
    assert check.ok
    assert targets(graph_module) == ["aten.conv2d.default"]


def test_a_fold_that_ignores_a_shared_convolution_is_caught() -> None:
    """The result is read twice: folding changes what the other reader sees; the float64 comparison says where."""
    # gamma 4, var 9, eps 7 (torch 2.11 takes no eps of 0): the norm only subtracts its mean, exactly.
    convolution, norm = nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1, eps=7.0)
    torch.nn.init.ones_(convolution.weight)
    torch.nn.init.constant_(norm.weight, 4.0)
    norm.running_var.fill_(9.0)  # type: ignore[union-attr, operator]
    norm.running_mean.fill_(3.0)  # type: ignore[union-attr, operator]

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = convolution, norm

        def forward(self, x: Tensor) -> Tensor:
            y = self.convolution(x)
            return self.norm(y) + y

    module = Shared().eval()
    x = torch.ones(1, 1, 2, 2)
    assert FuseConvBn().recipe(records(export(module, (x,)))).passes[0].groups == ()
    graph_module = export(module, (x,))
    pair = [node.name for node in records(graph_module).ops][:2]
    apply(graph_module, Pass("fuse_conv_bn", ((pair[0], pair[1]),)))
    check = verify(module, graph_module, (x,), seed=0)
    assert not check.ok
    assert "input as given, output 0: element 0 is -4 instead of -1" in check.counterexample


def test_equal_ops_are_merged_bit_for_bit() -> None:
    module = Calls(lambda x: torch.sin(x) + torch.sin(x))
    graph_module, check = rewritten(module, Cse(), torch.randn(5))
    assert targets(graph_module) == ["aten.sin.default", "aten.add.Tensor"]
    assert check.ok
    assert check.bit_equal


@pytest.mark.parametrize("draw", [torch.rand_like, torch.randn_like, lambda x: torch.dropout(x, 0.5, True)])
def test_two_draws_are_never_merged(draw: Callable[[Tensor], Tensor]) -> None:
    graph_module = export(Calls(lambda x: draw(x) + draw(x)), (torch.ones(64),))
    ops = records(graph_module).ops
    assert sum(node.random for node in ops) == 2
    apply(graph_module, Cse().recipe(records(graph_module)).passes[0])
    assert len([node for node in records(graph_module).ops if node.random]) == 2


def test_a_mutated_clone_is_not_taken_for_its_twin() -> None:
    """x.clone() twice, one then doubled in place: export makes both functional, so merging the clones is right."""
    module = Calls(lambda x: x.clone().mul_(2) + x.clone())
    _, check = rewritten(module, Cse(), torch.randn(5))
    assert check.ok, check.counterexample


def test_dead_ops_go() -> None:
    def body(x: Tensor) -> Tensor:
        torch.exp(torch.sin(torch.cos(x)))
        return x + 1

    graph_module, check = rewritten(Calls(body), Dce(), torch.randn(3))
    assert targets(graph_module) == ["aten.add.Tensor"]
    assert check.ok


def test_constants_are_computed_once() -> None:
    module = Calls(lambda x: x * (torch.full((3,), 2.0) + 1))
    graph_module, check = rewritten(module, ConstantFolding(), torch.randn(3))
    assert targets(graph_module) == ["aten.mul.Tensor"]
    assert check.ok


def test_a_wrong_rewrite_ends_rejected_and_untimed() -> None:
    source = load_spec(
        {
            "family": "compilation",
            "policy": "dce",
            "workload": {"source": "zoo:gpt2-tiny", "options": {"batch": 1, "training": False}},
            "hardware": "local",
            "mode": "measured",
        }
    ).workload
    from experiments.sources import load

    def wrong(graph: Any) -> Recipe:
        """Claims that the last two additions compute the same."""
        sums = [n.name for n in graph.ops if n.target == "aten.add.Tensor" and n.shape[-1:] == (64,)]
        return Recipe(passes=(Pass("cse", ((sums[0], sums[-1]),)),))

    measured = carry_out_live(load(source).value, wrong, 0, silent)
    assert measured.timing is None
    assert "input as given" in measured.verification.counterexample


def test_a_small_gpt_goes_through_every_pass() -> None:
    for policy in ("cse", "constant_folding"):
        found = outcome(policy, "zoo:gpt2-tiny", batch=1)
        assert found.status == "ok", found.reason


@pytest.mark.slow
def test_torch_compile_reports_kernels_breaks_and_compile_time() -> None:
    found = outcome("torch_compile", "zoo:mlp", batch=4)
    assert found.status == "ok", found.reason
    assert found.metrics["kernels"]["value"] >= 1
    assert found.metrics["graph_breaks"]["value"] == 0
    assert found.metrics["compile_time"]["value"] > 0


def test_a_backend_that_cannot_compile_ends_failed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A C++ compiler that does not exist: Inductor's own complaint becomes the reason."""
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/nowhere/c++",))
    found = outcome("torch_compile", "zoo:mlp", batch=3)
    assert found.status == "failed"
    assert found.reason.startswith("inductor: ")
    assert found.metrics == {}
