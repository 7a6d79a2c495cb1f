"""CUDA graphs: the launch model by hand, what is refused, and on a GPU replay against eager."""

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from experiments.compilation.interface import INPUT, OP, OUTPUT, Graph, GraphNode, Ref, Symbol, TensorType  # noqa: E402
from experiments.compilation.interface.launches import obstacles, times  # noqa: E402
from experiments.compilation.live.backends import Task, compile_task  # noqa: E402
from experiments.compilation.live.backends.cuda_graph import Replayed  # noqa: E402
from experiments.compilation.live.export import export, records  # noqa: E402
from experiments.compilation.policies.cuda_graph import CudaGraph  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402
from experiments.core.spec import load_spec  # noqa: E402
from experiments.run import run  # noqa: E402

pytestmark = pytest.mark.torch
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
OPTIONS = {"graphs": 2, "warm_up": 3, "clone": True}


def test_two_hundred_short_kernels_gain_and_long_ones_do_not() -> None:
    """3 us each: 200 launches of 5 us take 1000 us, a replay 10 + 600 us. 20 us each: 4000
    against 4010 us.
    """
    short = times([3e-6] * 200, launch=5e-6, replay=10e-6)
    assert (short.eager, short.replayed) == pytest.approx((1000e-6, 610e-6))
    assert short.speedup == pytest.approx(1.64, abs=5e-3)
    assert short.bound == "launches"
    long = times([20e-6] * 200, launch=5e-6, replay=10e-6)
    assert long.speedup == pytest.approx(4000 / 4010)
    assert long.bound == "kernels"


def outcome(mode: str, hardware: str, **knobs: Any) -> Any:
    workload = {"source": "zoo:mlp", "options": {"batch": 4}}
    spec = {"family": "compilation", "policy": "cuda_graph", "workload": workload, "knobs": knobs}
    return run(load_spec({**spec, "hardware": hardware, "mode": mode}))


def test_a_named_device_replays_the_five_kernels_of_a_perceptron() -> None:
    """Three layers and two ReLUs, each shorter than the floor of 2 us: max(25, 10) us against 10 + 10 us."""
    found = outcome("simulated", "a100-40g")
    assert found.metrics["kernels"]["value"] == 5
    assert found.metrics["latency"]["value"] == pytest.approx(20e-6)
    assert found.metrics["speedup"]["value"] == pytest.approx(25 / 20)
    assert found.plan["report"]["bound"] == "launches"


def test_what_needs_the_host_or_another_device_is_named() -> None:
    x = GraphNode("x", INPUT, "x", outputs=(TensorType((4,), "float32", (1,)),))
    picked = GraphNode("picked", OP, "aten.masked_select.default", (Ref("x"), Ref("x")))
    read = GraphNode("read", OP, "aten._local_scalar_dense.default", (Ref("x"),))
    made = GraphNode("made", OP, "aten.ones.default", ((1,),), (("device", Symbol("device", "cpu")),))
    out = GraphNode("out", OUTPUT, "output", (Ref("x"),))
    assert obstacles(Graph((x, picked, read, made, out)), "cuda:0") == (
        "picked (aten.masked_select.default): the shape of its result depends on data",
        "read (aten._local_scalar_dense.default): the host waits for its result",
        "made (aten.ones.default): runs on or copies to cpu",
    )
    assert obstacles(Graph((x, out)), "cuda:0") == ()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a GPU")
def test_without_a_gpu_it_is_unsupported_not_failed() -> None:
    task = Task(nn.Linear(2, 2), (torch.ones(1, 2),), "cpu")
    with pytest.raises(Infeasible, match="unsupported here: CUDA graphs need a GPU"):
        compile_task("cuda_graph", OPTIONS, task)
    found = outcome("measured", "local")
    assert found.status == "infeasible"
    assert "unsupported here" in found.reason


@on_gpu
def test_replays_equal_eager_bit_for_bit_and_never_show_older_inputs() -> None:
    module = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)).cuda().eval()
    call = Replayed(module, limit=2, warm_up=3, clone=True)
    kept, expected = [], []
    for batch in (4, 4, 8, 4, 2, 2):
        x = torch.randn(batch, 16, device="cuda")
        kept.append(call(x))
        with torch.no_grad():
            expected.append(module(x))
    for ours, truth in zip(kept, expected, strict=True):
        assert torch.equal(ours, truth)
    assert {name: call.counts[name] for name in ("captures", "replays", "misses", "eager_calls")} == {
        "captures": 2,
        "replays": 4,
        "misses": 4,
        "eager_calls": 2,
    }


def test_a_simulated_run_does_not_load_torch_once_the_model_is_captured() -> None:
    outcome("simulated", "a100-40g")
    code = (
        "import sys; from experiments.core.spec import load_spec; from experiments.run import run\n"
        "spec = {'family': 'compilation', 'policy': 'cuda-graph', 'mode': 'simulated',\n"
        "        'hardware': 'h100-80g',\n"
        "        'workload': {'source': 'zoo:mlp', 'options': {'batch': 4}}}\n"
        "print(run(load_spec(spec)).status, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ok", "False"]


def test_its_recipe_carries_its_knobs() -> None:
    recipe = CudaGraph(graphs=3, clone=False).recipe(records(export(nn.Linear(2, 2), (torch.ones(1, 2),))))
    assert (recipe.backend, recipe.options) == ("cuda_graph", {"graphs": 3, "warm_up": 3, "clone": False})
