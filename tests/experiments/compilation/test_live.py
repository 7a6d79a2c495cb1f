"""Answers carried out with torch, verified against eager in float64."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor

from experiments.compilation.interface import Applied, Draft, Graph, Ref, Rewritten, Workbench
from experiments.compilation.live.backends.base import Compiled, Task
from experiments.compilation.live.export import export, records
from experiments.compilation.live.lower import lower
from experiments.compilation.live.verify import verify
from experiments.compilation.policies.constant_folding import ConstantFolding
from experiments.compilation.policies.cse import Cse
from experiments.compilation.policies.dce import Dce
from experiments.compilation.policies.fuse_conv_bn import FuseConvBn, fold
from experiments.core.spec import load_spec
from experiments.run import run
from experiments.sources import load
from tests.experiments.compilation.graphs import module_of, rewritten, targets

pytestmark = pytest.mark.torch


@functools.cache
def folded_resnet18() -> Any:
    return outcome("fuse_conv_bn")


def outcome(policy: str, source: str = "zoo:resnet18", **options: Any) -> Any:
    knobs = {"training": options.pop("training", False)}
    workload = {"source": source, "options": options or {"batch": 1, "image": 32}}
    spec = {"family": "compilation", "policy": policy, "knobs": knobs, "workload": workload}
    return run(load_spec({**spec, "hardware": "local", "mode": "measured"}))


def test_resnet18_loses_its_twenty_batch_norms_and_keeps_its_output() -> None:
    before, after = outcome("eager"), folded_resnet18()
    assert after.status == "ok", after.reason
    assert after.metrics["rewrites"]["value"] == 20
    assert before.metrics["ops"]["value"] - after.metrics["ops"]["value"] == 20
    # A GPU convolves with the ten bits of TF32 unless it is told not to.
    bound = 1e-3 if torch.cuda.is_available() else 1e-5
    assert after.provenance["compilation"]["max_relative_error"] < bound
    norms = [row for row in after.plan["after"] if "batch_norm" in row["target"]]
    assert norms == []
    assert {row["state"] for row in after.plan["after"]} == {"kept", "rewired", "new", "once"}


def test_folding_a_pair_by_hand() -> None:
    """1x1 convolution w=2, b=1 and norm gamma=8, beta=0.5, mean=4, var=9, eps=7: w'=4, b'=-5.5, f(1)=-1.5."""
    module = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, eps=7.0)).eval()
    for tensor, value in zip(module.state_dict().values(), (2, 1, 8, 0.5, 4, 9), strict=False):
        tensor.fill_(value)
    done, lowered, check = rewritten(module, FuseConvBn(), torch.ones(1, 1, 1, 1))
    assert lowered(torch.ones(1, 1, 1, 1)).item() == -1.5
    assert check.ok
    assert targets(done.graph) == ["aten.conv2d.default"]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_norm_after_a_transposed_convolution_is_folded_by_its_groups(groups: int) -> None:
    module = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=groups), nn.BatchNorm2d(6, affine=False))
    module[1].running_var = torch.rand(6) + 0.5
    module[1].running_mean = torch.randn(6)
    done, _, check = rewritten(module, FuseConvBn(), torch.randn(2, 4, 5, 5))
    assert check.ok, check.counterexample
    assert targets(done.graph) == ["aten.conv_transpose2d.input"]


class FoldsRegardless(FuseConvBn):
    """Folds although the convolution is read elsewhere too."""

    def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
        draft = Draft(graph, bench.types)
        convolution, norm = graph.ops[:2]
        made = fold(draft, convolution, norm)
        draft.replace(Ref(convolution.name), made)
        return Rewritten(draft.finish(), (Applied("wrong", (convolution.name,)),))


def test_a_fold_that_ignores_a_shared_convolution_is_caught() -> None:
    """The result is read twice: folding changes what the other reader sees; the float64 comparison says
    where.
    """
    # gamma 4, var 9, eps 7 (torch 2.11 takes no eps of 0): the norm only subtracts its mean, exactly.
    convolution, norm = nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1, eps=7.0)
    torch.nn.init.ones_(convolution.weight)
    torch.nn.init.constant_(norm.weight, 4.0)
    norm.running_var.fill_(9.0)  # type: ignore[union-attr]
    norm.running_mean.fill_(3.0)  # type: ignore[union-attr]

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = convolution, norm

        def forward(self, x: Tensor) -> Any:
            y = self.convolution(x)
            return self.norm(y) + y

    x = torch.ones(1, 1, 2, 2)
    done, _, check = rewritten(Shared(), FuseConvBn(), x)
    assert done.applied == ()
    assert check.ok
    _, _, check = rewritten(Shared(), FoldsRegardless(), x)
    assert not check.ok
    assert "input as given, output 0: element 0 is -4 instead of -1" in check.counterexample


def test_equal_ops_are_merged_bit_for_bit() -> None:
    done, _, check = rewritten(module_of(lambda x: torch.sin(x) + torch.sin(x)), Cse(), torch.randn(5))
    assert targets(done.graph) == ["aten.sin.default", "aten.add.Tensor"]
    assert check.ok
    assert check.bit_equal


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.randint_like(x, 9),
        lambda x: torch.empty_like(x).uniform_(),
        lambda x: torch.dropout(x, 0.5, True),
    ],
)
def test_two_draws_are_never_merged(draw: Callable[[Tensor], Tensor]) -> None:
    graph = records(export(module_of(lambda x: draw(x) + draw(x)), (torch.ones(64),)))
    assert sum(node.random for node in graph.ops) == 2
    done, _, _ = rewritten(module_of(lambda x: draw(x) + draw(x)), Cse(), torch.ones(64))
    assert sum(node.random for node in done.graph.ops) == 2


def test_a_mutated_clone_is_not_taken_for_its_twin() -> None:
    """x.clone() twice, one then doubled in place: export makes both functional, so merging the clones is
    right.
    """
    _, _, check = rewritten(module_of(lambda x: x.clone().mul_(2) + x.clone()), Cse(), torch.randn(5))
    assert check.ok, check.counterexample


def test_a_view_summed_before_and_after_its_base_changes_is_two_sums() -> None:
    def body(x: Tensor) -> Tensor:
        base = x.clone()
        first = base.view(-1).sum()
        base.mul_(3)
        return first + base.view(-1).sum()

    _, _, check = rewritten(module_of(body), Cse(), torch.randn(2, 3))
    assert check.ok, check.counterexample


def test_dead_ops_go() -> None:
    def body(x: Tensor) -> Tensor:
        torch.exp(torch.sin(torch.cos(x)))
        return x + 1

    done, _, check = rewritten(module_of(body), Dce(), torch.randn(3))
    assert targets(done.graph) == ["aten.add.Tensor"]
    assert check.ok


def test_constants_are_computed_once() -> None:
    done, lowered, check = rewritten(
        module_of(lambda x: x * (torch.full((3,), 2.0) + 1)), ConstantFolding(), torch.randn(3)
    )
    assert targets(done.graph) == targets(records(lowered)) == ["aten.mul.Tensor"]
    assert check.ok


def test_a_wrong_rewrite_ends_rejected_and_untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Dce, graph: Graph, bench: Workbench) -> Rewritten:
        """Claims that the last two additions compute the same."""
        sums = [n.name for n in graph.ops if n.target == "aten.add.Tensor" and n.shape[-1:] == (64,)]
        draft = Draft(graph, bench.types)
        draft.replace(Ref(sums[-1]), Ref(sums[0]))
        return Rewritten(draft.finish())

    monkeypatch.setattr(Dce, "rewrite", wrong)
    found = outcome("dce", "zoo:gpt2-tiny", batch=1)
    assert found.status == "rejected"
    assert "input as given, output 0: element" in found.reason
    assert "latency" not in found.metrics


class Power(nn.Module):
    """x to the 21st: for the inputs times 10,000, 1e84 overflows float32 and not float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x**21


def test_what_overflows_in_eager_too_is_no_counterexample_and_what_overflows_alone_is() -> None:
    task = Task(Power(), (torch.tensor([0.5, 1.0]),), "cpu")
    found = verify(task, Compiled(lambda x: x**20 * x, 0.0, 0.0), 0)
    assert found.ok and found.places_compared == 10  # of six inputs one overflows in both places
    wrong = verify(task, Compiled(lambda x: x**21 * 1.1, 0.0, 0.0), 0)
    assert "input as given, output 0: element 1" in wrong.counterexample
    early = verify(task, Compiled(lambda x: (x * 1e3) ** 21 / 1e3**21, 0.0, 0.0), 0)
    assert not early.ok


def test_a_model_that_gives_no_number_cannot_be_verified() -> None:
    nothing = Task(module_of(lambda x: x / 0 - x / 0), (torch.ones(2),), "cpu")
    found = verify(nothing, Compiled(lambda x: x / 0 - x / 0, 0.0, 0.0), 0)
    assert found.counterexample == "eager gives no finite number on any input: nothing to compare"
    assert "is 1 instead of nan" in verify(nothing, Compiled(lambda x: x, 0.0, 0.0), 0).counterexample


def test_a_rewrite_of_the_training_step_is_judged_by_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers of equal weights: the loss stays right when both read the first one's, the
    gradients do not.
    """
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    module[2].load_state_dict(module[0].state_dict())

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = module

        def forward(self, x: Tensor) -> Any:
            return self.body(x).square().sum()

    class Ties(Dce):
        def rewrite(self, graph: Graph, bench: Workbench) -> Rewritten:
            first, second = (n for n in graph.ops if n.target == "aten.linear.default")
            draft = Draft(graph, bench.types)
            draft.replace(second.refs[1], first.refs[1])
            return Rewritten(draft.finish())

    _, _, right = rewritten(Loss(), Cse(training=True), torch.randn(4, 3))
    assert right.ok, right.counterexample
    _, _, wrong = rewritten(Loss(), Ties(training=True), torch.randn(4, 3))
    assert "gradient of body.0.weight" in wrong.counterexample


@pytest.mark.parametrize("training", [False, True])
def test_a_training_step_goes_through_the_passes(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is left of the gradients of two images after normalization drowns in TF32.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    found = outcome("cse", "zoo:gpt2-tiny", batch=2, training=training)
    assert found.status == "ok", found.reason
    folded = outcome("fuse_conv_bn", batch=2, image=32, training=True) if training else folded_resnet18()
    assert folded.status == "ok", folded.reason
    assert folded.metrics["rewrites"]["value"] == (0 if training else 20)


SPEC = {"family": "compilation", "policy": "eager", "hardware": "local", "mode": "measured"}
#: DLRM's own tables hold 166 million numbers, which take longest to draw; shorter ones meet the same ops.
SMALLER = {"dlrm": {"rows": 1000}}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["mlp", "gpt2-tiny", "dlrm", "resnet18", "googlenet"])
def test_a_graph_goes_to_records_and_back_without_loss(name: str, training: bool) -> None:
    from experiments.compilation.live.preparation import prepare

    sizes = {"batch": 2, "image": 32 if name == "resnet18" else None}
    spec = {"source": f"zoo:{name}", "options": {k: v for k, v in sizes.items() if v}}
    source = load(load_spec(SPEC | {"workload": spec}).workload).value
    options = replace(source.options, training=training)
    source = replace(source, options=options, sizes=SMALLER.get(name, {}))
    prepared = prepare(source, training, 0)
    lowered = lower(prepared.graph, prepared.origin)
    assert records(lowered) == prepared.graph
    with torch.no_grad():
        torch.manual_seed(0)
        ours = lowered(*prepared.inputs)
        torch.manual_seed(0)
        theirs = prepared.origin(*prepared.inputs)
    assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_torch_compile_reports_kernels_breaks_and_compile_time() -> None:
    found = outcome("torch_compile", "zoo:mlp", batch=4)
    assert found.status == "ok", found.reason
    assert found.metrics["kernels"]["value"] >= 1
    assert found.metrics["graph_breaks"]["value"] == 0
    assert found.metrics["compile_time"]["value"] > 0


def test_a_backend_that_cannot_compile_ends_failed_with_its_reason() -> None:
    """A C++ compiler that does not exist: Inductor's own complaint becomes the reason."""
    with inductor.patch({"cpp.cxx": ("/nowhere/c++",)}):
        found = outcome("torch_compile", "zoo:mlp", batch=3)
    assert found.status == "failed"
    assert found.reason.startswith("inductor: ")
    assert found.metrics == {}
