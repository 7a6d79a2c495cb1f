"""From graph records and lists of operators to runs of roller and welder."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.compilation.interface import Argument, Graph, GraphNode, Ref, TensorType, contiguous
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.tiles import violations
from experiments.compilation.planning.tiles.from_graph import translate
from experiments.compilation.policies.roller import Roller
from experiments.compilation.policies.welder import Welder
from experiments.core.options import WorkloadOptions
from experiments.core.progress import silent
from experiments.core.spec import RunSpec, Workload
from experiments.hardware.specs import resolve
from experiments.run import run

V100 = Architecture(resolve("v100").device)


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype, contiguous(shape))


def given(name: str, *shape: int, kind: str = "constant") -> GraphNode:
    return GraphNode(name, kind, name, outputs=(tensor(*shape),))


def op(name: str, target: str, *arguments: Argument, out: tuple[int, ...], views: bool = False) -> GraphNode:
    return GraphNode(name, "op", f"aten.{target}", arguments, outputs=(tensor(*out),), views=views)


def block() -> Graph:
    """A linear layer, gelu, a view that splits its columns, attention over it, and a sum over rows."""
    x = "x"
    return Graph(
        (
            given(x, 2, 64, 96, kind="input"),
            given("w", 96, 96),
            given("b", 96),
            op("linear", "linear.default", Ref(x), Ref("w"), Ref("b"), out=(2, 64, 96)),
            op("gelu", "gelu.default", Ref("linear"), out=(2, 64, 96)),
            op("view", "_unsafe_view.default", Ref("gelu"), (2, 64, 3, 32), out=(2, 64, 3, 32)),
            op("heads", "transpose.int", Ref("view"), 1, 2, out=(2, 3, 64, 32), views=True),
            op(
                "attend",
                "scaled_dot_product_attention.default",
                Ref("heads"),
                Ref("heads"),
                Ref("heads"),
                out=(2, 3, 64, 32),
            ),
            op("mean", "mean.dim", Ref("attend"), (-2,), True, out=(2, 3, 1, 32)),
            op("cat", "cat.default", (Ref("mean"), Ref("mean")), -1, out=(2, 3, 1, 64)),
            GraphNode("output", "output", "output", ((Ref("cat"),),)),
        )
    )


class TestTranslation:
    def test_ops_become_operators_that_read_one_another_where_no_view_lies_between(self) -> None:
        found = translate(block())
        nodes = found.graph.by_name
        assert list(nodes) == ["linear", "gelu", "attend.scores", "attend.softmax", "attend", "mean", "cat"]
        assert nodes["linear"].expression.extents == (2, 64, 96, 96)
        assert nodes["gelu"].sources == ("linear",)
        assert nodes["attend.scores"].sources == ("", "")
        assert nodes["attend.scores"].after == ("gelu",)
        assert nodes["attend"].sources == ("attend.softmax", "")
        assert nodes["mean"].sources == ("attend",)
        assert nodes["mean"].expression.output.shape == (2, 3, 1, 32)
        assert found.graph.kept == {"cat"}
        assert found.copies == ("aten.cat.default",)

    def test_arithmetic_of_the_graph_is_that_of_its_products(self) -> None:
        nodes = translate(block()).graph.by_name
        work = {name: node.expression.work(node.expression.extents) for name, node in nodes.items()}
        assert work["linear"] == 2 * 128 * 96 * 96
        assert work["attend.scores"] == work["attend"] == 2 * 6 * 64 * 64 * 32

    @pytest.mark.parametrize(
        ("padding", "groups", "extents"),
        [((1, 1), 1, (2, 16, 8, 8, 8, 3, 3)), ((0, 0), 8, (2, 8, 2, 6, 6, 3, 3))],
    )
    def test_convolutions_keep_padding_and_groups(
        self, padding: tuple[int, int], groups: int, extents: tuple[int, ...]
    ) -> None:
        out = (2, 16, *extents[-4:-2]) if groups == 8 else (2, 16, 8, 8)
        nodes = (
            given("x", 2, 8, 8, 8, kind="input"),
            given("w", 16, 8 // groups, 3, 3),
            op("conv", "conv2d.default", Ref("x"), Ref("w"), None, (1, 1), padding, (1, 1), groups, out=out),
            GraphNode("output", "output", "output", ((Ref("conv"),),)),
        )
        made = translate(Graph(nodes)).graph.by_name["conv"].expression
        assert made.extents == extents
        assert made.output.shape == out

    @pytest.mark.parametrize("policy", [Roller(), Welder(), Welder(fuse=False)])
    def test_every_operator_is_in_one_kernel_after_what_it_reads(self, policy: Roller | Welder) -> None:
        graph = translate(block()).graph
        plan = policy.tiles(graph, V100, silent)
        assert violations(plan, graph, V100.units) == []
        assert all(kernel.cost.seconds > 0 and kernel.cost.bytes > 0 for kernel in plan.kernels)

    def test_gelu_joins_its_layer_and_what_reads_a_view_does_not(self) -> None:
        plan = Welder().tiles(translate(block()).graph, V100, silent)
        first = plan.kernels[0]
        assert first.operators == ("linear", "gelu")
        assert plan.bytes < plan.apart_bytes

    def test_a_plan_that_leaves_an_operator_out_or_reads_too_early_is_told(self) -> None:
        graph = translate(block()).graph
        plan = Roller().tiles(graph, V100, silent)
        backwards = type(plan)(plan.kernels[::-1][:-1], plan.examined)
        messages = violations(backwards, graph, V100.units)
        assert "linear is in 0 kernels" in messages
        assert "mean is launched before attend, which it reads" in messages


LIST = """M4 matmul m=65536 n=1024 k=1024
C3 conv x=128x168x42x42 filters=168 kernel=1x1
R0 reduce shape=65536x1024 over=1
"""


class TestRuns:
    @pytest.mark.parametrize("policy", ["roller", "welder"])
    def test_a_list_of_operators_is_a_workload(self, tmp_path: Path, policy: str) -> None:
        file = tmp_path / "operators.txt"
        file.write_text(LIST)
        outcome = run(RunSpec("compilation", policy, Workload(str(file)), "v100"))
        assert outcome.status == "ok"
        assert outcome.violations == []
        figures = {name: entry["value"] for name, entry in outcome.metrics.items()}
        assert figures["kernels"] == figures["ops"] == 3
        assert figures["flops"] >= 2 * 65536 * 1024 * 1024
        assert figures["latency"] > 2 * 65536 * 1024 * 1024 / 12.48e12
        assert len(outcome.plan["kernels"]) == 3
        whole, *parts = outcome.plan["summary"]
        kinds = ["convolution", "matmul", "reduction"]
        assert [row["of"] for row in parts][:3] == kinds
        assert whole["kernels"] == sum(row["kernels"] for row in parts[:3]) == 3
        assert whole["least_seconds"] <= whole["seconds"] == figures["latency"]
        assert whole["least_bytes"] <= figures["bytes"]
        assert all(
            1 <= row["waves"] <= -(-row["grid"] // V100.units.count) for row in outcome.plan["kernels"]
        )
        faster = run(RunSpec("compilation", policy, Workload(str(file)), "h200"))
        assert faster.metrics["latency"]["value"] < figures["latency"]

    def test_recorded_times_are_compared_kernel_by_kernel(self, tmp_path: Path) -> None:
        file, times = tmp_path / "operators.txt", tmp_path / "times.dat"
        file.write_text(LIST)
        alone = run(RunSpec("compilation", "roller", Workload(str(file)), "v100"))
        launch = V100.launch
        ours = {row["operators"][0]: row["seconds"] - launch for row in alone.plan["kernels"]}
        # TVM is said to take four times as long on one, and as long as ours on another: geometric mean 2.
        times.write_text(f"OP TVM mine\nM4 {4e3 * ours['M4']!r} 1\nR0 {1e3 * ours['R0']!r} 0\n")
        options = WorkloadOptions(extra=str(times))
        outcome = run(RunSpec("compilation", "roller", Workload(str(file), options=options), "v100"))
        assert outcome.metrics["speedup_over_tvm"]["value"] == pytest.approx(2)
        assert outcome.series["recorded TVM over ours"]["y"] == pytest.approx([1, 4])
        assert len(outcome.series["recorded mine over ours"]["y"]) == 1
        assert outcome.provenance["recorded"] == {"TVM": 2, "mine": 1}

    def test_a_list_needs_no_torch(self, tmp_path: Path) -> None:
        file = tmp_path / "operators.txt"
        file.write_text(LIST)
        code = (
            "import sys; from experiments.run import run; from experiments.core.spec import RunSpec, "
            "Workload;"
            f"run(RunSpec('compilation', 'roller', Workload({str(file)!r}), 'a100'));"
            "print('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"
