"""Operators on a mesh: matmuls of the cards, Megatron's column and row, norms, halos, and plans by annotation
or by name.
"""

from __future__ import annotations

import functools
import itertools
import math

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.layouts import PARTIAL, WHOLE, count_parts
from experiments.parallel.planning.meshes.mesh_plan import traffic_by_layer
from experiments.parallel.planning.meshes.partition import OperatorPartition
from experiments.parallel.planning.operators.divisions import axes_of, configurations
from experiments.parallel.policies.gspmd import Gspmd, partition_operators
from experiments.parallel.policies.gspmd.propagation import Propagation, annotate
from experiments.parallel.policies.mesh_tensorflow import MeshTensorFlow
from experiments.parallel.simulator import simulate
from experiments.sources import layers_of
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.einsums import light, product
from tests.experiments.parallel.test_layouts import FAST, mesh

XY = mesh(2, 2)


@functools.cache
def gpt(name: str = "gpt2-tiny", batch: int = 8, sequence: int = 32) -> LayerGraph:
    workload = Workload(f"zoo:{name}", options=WorkloadOptions(batch=batch, sequence=sequence))
    return layers_of(workload, cluster().device)[0]


def placed(policy: MeshTensorFlow | Gspmd, model: LayerGraph, hardware: Hardware, batch: int) -> ParallelPlan:
    plan = policy.place(model, hardware, batch, estimate(model, hardware))
    assert violations(plan, model, hardware) == []
    return plan


class TestOperators:
    def test_rows_and_columns_need_nothing(self) -> None:
        """X[b/x, d] W[d, f/y] -> Y[b/x, f/y]."""
        operator = product("bd", "df", "bf")
        split = OperatorPartition(("b", "f"), part.summed_layout(operator, ("b", "f")))
        assert split.output == (0, 1)
        assert part.operator_traffic(operator, split, XY).forward == ()
        assert part.work_parts(split.loops, XY) == 4

    def test_loops_along_a_mesh_are_a_configuration_with_named_axes(self) -> None:
        """A tensor is cut into as many parts either way, whichever loop an axis of 2 or of 3 divides."""
        operator, grid = product("bd", "df", "bf", b=6, d=12, f=24), mesh(2, 3)
        axes = axes_of(operator, partial_sums=True)
        for loops in itertools.product(["", *axes.names], repeat=2):
            cut = part.division_along(loops, grid)
            configuration = tuple(cut.get(name, 1) for name in axes.names)
            assert configuration in configurations(axes, 6)
            for operand in operator.operands:
                layout = part.layout_read(operand, loops)
                assert count_parts(layout, grid.sizes) == axes.parts_of(configuration, operand.dims)
            assert math.prod(configuration) == part.work_parts(loops, grid)

    def test_a_divided_sum_is_reduced(self) -> None:
        """X[b/x, d/y] W[d/y, f] -> partial sums of b/2 x f on each device: 4 x 32 values over y."""
        operator = product("bd", "df", "bf")
        assert part.layout_made(operator, ("b", "d")) == (0, PARTIAL)
        found = part.operator_traffic(operator, OperatorPartition(("b", "d"), (0, WHOLE)), XY)
        assert found.forward == (("all_reduce", 1, 4 * 32.0, "sample"),)
        assert found.backward == (("all_reduce", 0, 8 * 32.0, "step"),)  # a half of W's 16 x 32, over x

    def test_a_sum_that_is_handed_on_in_parts_is_scattered_and_its_gradient_gathered(self) -> None:
        operator = product("bd", "df", "bf")
        found = part.operator_traffic(operator, OperatorPartition(("b", "d"), (0, 1)), XY)
        assert [step.kind for step in found.forward] == ["reduce_scatter"]
        assert found.backward[0] == ("all_gather", 1, 4 * 32.0, "sample")

    def test_a_bias_has_no_part_in_the_sum(self) -> None:
        model = gpt()
        contract = next(o for o in model.einsums if o.contracted == ("feedforward",))
        _, weight, bias = contract.operands
        assert part.layout_of_gradient(contract, weight, ("feedforward",)) == (1,)
        assert part.layout_of_gradient(contract, bias, ("feedforward",)) == (WHOLE,)
        assert part.layout_of_gradient(contract, bias, ("batch",)) == (PARTIAL,)

    def test_columns_then_rows_reduce_once_forward_and_once_backward(self) -> None:
        """Megatron's feed-forward layer: X[b,d] A[d,f/y] -> [b,f/y] B[f/y,d] -> sum; dX of A is the other
        sum.
        """
        operators = [
            product("bf", "fd", "bd"),
            product("bd", "df", "bf", source=0, parameter=1),
            product("bf", "fd", "bd", source=1, parameter=2),
        ]
        chosen = [
            OperatorPartition(("",), (WHOLE,)),
            OperatorPartition(("f",), (1,)),
            OperatorPartition(("f",), (WHOLE,)),
        ]
        sent = traffic_by_layer(operators, chosen, mesh(2))[0]
        assert sent.forward == [("all_reduce", 0, 8 * 16.0, "sample")]
        assert sent.backward == [("all_reduce", 0, 8 * 16.0, "sample")]

    def test_readers_of_one_tensor_fetch_it_once(self) -> None:
        """Three products read the same sums: gathered once, and their gradients added before they are
        reduced.
        """
        operators = [product("bf", "fd", "bd")]
        operators += [product("bd", "df", "bf", source=0, parameter=i) for i in (1, 2, 3)]
        chosen = [OperatorPartition(("d",), (1,)), *[OperatorPartition(("f",), (1,))] * 3]
        sent = traffic_by_layer(operators, chosen, mesh(2))[0]
        assert sent.forward == [("all_gather", 0, 8 * 16.0, "sample")]
        assert sent.backward == [("reduce_scatter", 0, 8 * 16.0, "sample")]

    def test_a_divided_convolution_exchanges_borders(self) -> None:
        """AlexNet's second convolution reads 2 x 64 x 27 x 27 values; of 27 rows on 3 devices 4
        more come in.
        """
        workload = Workload("zoo:alexnet", options=WorkloadOptions(batch=2))
        second = [o for o in layers_of(workload, None)[0].einsums if o.kind == "convolution"][1]
        split = OperatorPartition(("height",), (2,))
        (step,) = part.operator_traffic(second, split, mesh(3)).forward
        assert step == ("permute", 0, second.operands[0].bytes / 3 * 4 / 9, "sample")


class TestMeshTensorFlow:
    def test_the_default_rules_are_megatron_with_data_parallelism(self) -> None:
        """Two nodes of two; heads and the feed-forward layer along a node: two all-reduces each way, b s h
        values each.
        """
        plan = placed(MeshTensorFlow(), gpt(), cluster(2, 2, link=FAST, network=FAST), 8)
        block = next(s for s in plan.shardings if s.layer == gpt().layer.index("blocks.0"))
        half = 32 * 64 * 4 / 2
        assert [(c.kind, c.bytes, c.ranks, c.stride) for c in block.forward] == [
            ("all_reduce", half, 2, 1)
        ] * 2
        assert [(c.kind, c.bytes) for c in block.backward[:2]] == [("all_reduce", half)] * 2
        assert block.backward[2].per == "step" and block.backward[2].stride == 2

    def test_an_axis_cannot_divide_two_dimensions_of_a_tensor(self) -> None:
        with pytest.raises(BadInput, match="heads and hidden of a tensor of addmm have the axis model"):
            placed(MeshTensorFlow("heads:model hidden:model"), gpt(), cluster(1, 2), 8)

    def test_an_axis_that_does_not_divide_is_refused_where_that_is_asked(self) -> None:
        hardware = cluster(1, 3, link=FAST)
        with pytest.raises(BadInput, match=r"heads of 4 in .* does not divide along 3"):
            placed(MeshTensorFlow("heads:model", uneven="refused"), gpt(), hardware, 8)
        assert placed(MeshTensorFlow("heads:model"), gpt(), hardware, 8).notes["layout"] == {"heads": "model"}

    @pytest.mark.parametrize("rule", ["batch", "batch:rows", "batch:data batch:model"])
    def test_what_is_no_rule_is_named(self, rule: str) -> None:
        with pytest.raises(BadInput, match=r"not a rule|two axes"):
            placed(MeshTensorFlow(rule), gpt(), cluster(1, 2), 8)

    def test_experts_on_the_axis_of_the_batch_exchange_their_rows(self) -> None:
        model = gpt("moe", 8, 16)
        plan = placed(MeshTensorFlow("batch:model experts:model"), model, cluster(1, 8, link=FAST), 8)
        block = next(s for s in plan.shardings if s.layer == model.layer.index("blocks.1"))
        assert {c.kind for c in block.forward} == {"all_to_all"}
        # Each device sends the rows of its own sample: 2 for each token, 16 tokens of 512 values.
        assert [c.bytes for c in block.forward if c.bytes > 1000] == [2 * 16 * 512 * 4 / 8] * 2


class TestGspmd:
    def test_annotated_operands_divide_a_product_without_messages(self) -> None:
        operators = [product("bd", "df", "bf")]
        spread = annotate(operators, XY, {"inputs": {"b": "x"}, "weights": {"f": "y"}}, False).run()
        assert spread.layout(("result", 0)) == (0, 1)
        assert partition_operators(operators, spread) == [
            OperatorPartition(("b", "f"), (0, 1), ((WHOLE, 1),))
        ]

    def test_a_summed_dimension_divided_on_both_sides_is_reduced(self) -> None:
        operators = [product("bd", "df", "bf")]
        rules = {"inputs": {"b": "x", "d": "y"}, "weights": {"d": "y"}}
        (chosen,) = partition_operators(operators, annotate(operators, XY, rules, False).run())
        assert chosen.loops == ("b", "d") and chosen.output == (0, WHOLE)
        assert part.operator_traffic(operators[0], chosen, XY).forward == (
            ("all_reduce", 1, 128.0, "sample"),
        )

    def test_a_second_run_changes_nothing(self) -> None:
        model = gpt()
        for rules in ({"inputs": {"batch": "x"}, "weights": {"heads": "y"}}, {"results": {"hidden": "y"}}):
            once = annotate(model.einsums, XY, rules, True).run()
            again = Propagation(model.einsums, XY, dict(once.found), once.fixed).run()
            assert again.found == once.found and again.sweeps == 0

    def test_annotated_tensors_stay_as_they_are(self) -> None:
        """Closed: what is not named of the input is whole, though its reader would divide it."""
        operators = [product("bd", "df", "bf"), light("bf", 0)]
        rules = {"inputs": {"b": "x"}, "results": {"f": "y"}}
        for open_dimensions, layout in ((True, (0, 1)), (False, (WHOLE, 1))):
            spread = annotate(operators, XY, rules, open_dimensions).run()
            assert spread.layout(("result", 1)) == layout

    def test_weights_kept_in_parts_are_gathered_and_their_gradients_scattered(self) -> None:
        """W[d/x, f] with X[b/x, d]: x cannot divide the sum, so W comes whole for each pass."""
        operators = [product("bd", "df", "bf")]
        rules = {"inputs": {"b": "x"}, "weights": {"d": "x"}}
        (chosen,) = partition_operators(operators, annotate(operators, XY, rules, False).run())
        found = part.operator_traffic(operators[0], chosen, XY)
        assert found.forward == (("all_gather", 0, 512.0, "pass"),)
        assert found.backward == (("all_gather", 0, 512.0, "pass"), ("reduce_scatter", 0, 512.0, "step"))
        assert part.parameter_bytes(operators[0], chosen, XY) == 256.0

    def test_megatrons_annotations_give_megatrons_collectives(self) -> None:
        hardware = cluster(2, 2, link=FAST, network=FAST)
        by_name = placed(MeshTensorFlow(), gpt(), hardware, 8)
        spread = placed(Gspmd("megatron"), gpt(), hardware, 8)
        block = gpt().layer.index("blocks.0")
        assert spread.shardings[block].forward == by_name.shardings[block].forward
        assert spread.shardings[block].backward[:2] == by_name.shardings[block].backward[:2]

    def test_two_dimensional_sharding_gathers_and_scatters(self) -> None:
        plan = placed(Gspmd("2d"), gpt(), cluster(2, 2, link=FAST, network=FAST), 8)
        block = plan.shardings[gpt().layer.index("blocks.0")]
        assert [c.kind for c in block.forward if c.per == "sample" and c.bytes > 2000] == [
            "all_gather",
            "reduce_scatter",
        ] * 2
        assert 3.9 < block.compute <= 4  # a part's tiles are not as full

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("weights.heads", r"'weights\.heads' is not an annotation"),
            ("weights.heads:x weights.heads:y", r"weights\.heads has two axes"),
        ],
    )
    def test_what_is_no_annotation_is_named(self, text: str, complaint: str) -> None:
        with pytest.raises(BadInput, match=complaint):
            placed(Gspmd("custom", text), gpt(), cluster(1, 2), 8)


@pytest.mark.parametrize("policy", [MeshTensorFlow(), Gspmd("megatron"), Gspmd("2d"), Gspmd("data")])
def test_one_device_takes_the_serial_time_and_more_what_the_notes_predict(
    policy: MeshTensorFlow | Gspmd,
) -> None:
    model = gpt()
    alone = cluster(1, 1)
    serial = float((model.forward_seconds + model.backward_seconds).sum())
    assert simulate(placed(policy, model, alone, 8), estimate(model, alone)).step_time == pytest.approx(
        serial
    )
    hardware = cluster(2, 2, link=FAST, network=FAST)
    plan = placed(policy, model, hardware, 8)
    found = simulate(plan, estimate(model, hardware))
    assert found.step_time <= plan.notes["predicted_step_time"] * (1 + 1e-9)


def test_graphs_without_operators_are_divided_by_their_batch() -> None:
    plan = placed(Gspmd("data"), chain(2, batch=8, output_bytes=4.0), cluster(1, 4), 8)
    assert [(sharding.compute, sharding.axis) for sharding in plan.shardings] == [(4, "batch")] * 2
