"""PipeDream's planner and pipeline: by hand, against brute force, and against times of the
released planner.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput, Infeasible
from experiments.core.options import WorkloadOptions
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.stages import cuts as cuts_module
from experiments.parallel.planning.stages.cuts import cuts_of
from experiments.parallel.planning.stages.one_by_one import in_flight, replica_order
from experiments.parallel.planning.stages.stage_search import ClusterLevel, StageSearchRules, search
from experiments.parallel.policies.pipedream import PipeDream
from experiments.parallel.simulator import simulate
from experiments.readers.base import open_file
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged
from tests.experiments.parallel.builders import chain, cluster, estimate


def link(bandwidth: float) -> Link:
    return Link("test", bandwidth, 0.0, True, "test")


def machines(count: int, bandwidth: float) -> Hardware:
    return cluster(count, 1, network=link(bandwidth))


def layers(times: list[float], parameters: list[float], output: float = 0.0) -> LayerGraph:
    """A chain; a third of each time is the forward pass."""
    made = chain(len(times), output_bytes=output, stash_bytes=1.0)
    seconds = np.array(times)
    return replace(
        made,
        forward_seconds=seconds / 3,
        backward_seconds=seconds * 2 / 3,
        parameter_bytes=np.array(parameters, float),
    )


def planned(model: LayerGraph, hardware: Hardware, **knobs: object) -> ParallelPlan:
    policy = PipeDream(**knobs)  # type: ignore[arg-type]
    plan = policy.place(model, hardware, model.batch, estimate(model, hardware))
    assert violations(plan, model, hardware) == []
    return plan


def shape(plan: ParallelPlan) -> list[tuple[int, int, int]]:
    return [(stage.begin, stage.end, len(stage.workers)) for stage in plan.stages]


class TestByHand:
    """Two layers of 4 and 1 seconds; the second has w bytes of parameters; links of 1 byte/s."""

    @pytest.mark.parametrize(
        ("devices", "parameters", "seconds", "stages"),
        [
            (1, 2, 5.0, [(0, 2, 1)]),
            (2, 1, 3.5, [(0, 2, 2)]),  # (5 + 4 * 1/2) / 2: the data-parallel plan is best
            (2, 2, 4.0, [(0, 1, 1), (1, 2, 1)]),  # where it would take (5 + 4) / 2 = 4.5
            (3, 2, 2.0, [(0, 1, 2), (1, 2, 1)]),
        ],
    )
    def test_stages_and_replicas(
        self, devices: int, parameters: int, seconds: float, stages: list[tuple[int, int, int]]
    ) -> None:
        plan = planned(layers([4, 1], [0, parameters]), machines(devices, 1.0))
        assert plan.notes["pipeline_time"] == pytest.approx(seconds)
        assert shape(plan) == stages

    def test_the_paper_takes_the_longer_of_compute_and_synchronization(self) -> None:
        """Data-parallel on two: max(5, 4) / 2 = 2.5 instead of (5 + 4) / 2."""
        plan = planned(layers([4, 1], [0, 2]), machines(2, 1.0), stage_time="paper")
        assert plan.notes["pipeline_time"] == pytest.approx(2.5)

    def test_an_activation_too_large_to_send_keeps_the_layers_together(self) -> None:
        """Output of 3 bytes: 2 * 3 = 6 s there and back, more than the 4.5 s of data parallelism."""
        model = layers([4, 1], [0, 2], output=3.0)
        assert planned(model, machines(2, 1.0)).notes["pipeline_time"] == pytest.approx(4.5)
        free = planned(model, machines(2, 1.0), transfers=False)
        assert free.notes["pipeline_time"] == pytest.approx(4.0)

    def test_two_levels_use_the_fast_link_inside_the_machine(self) -> None:
        """Four devices as 2 x 2: parameters cross the fast link only. One machine takes the 6 s layer, one
        the rest.
        """
        hardware = cluster(2, 2, link=link(1e9), network=link(1.0))
        plan = planned(layers([6, 3, 3], [100, 100, 100]), hardware)
        assert plan.notes["pipeline_time"] == pytest.approx(3.0, abs=1e-6)
        assert [worker.devices for worker in plan.workers] == [(0,), (1,), (2,), (3,)]

    def test_a_mini_batch_stays_in_its_machine(self) -> None:
        """Each of two machines is 2 replicas and 1; mini-batch b is on machine b mod 2 in both stages."""
        hardware = cluster(2, 3, link=link(1e9), network=link(1e3))
        plan = planned(layers([4, 2], [0, 1000], output=1000.0), hardware)
        assert shape(plan) == [(0, 1, 4), (1, 2, 2)]
        machine = {
            (slot.micro_batch, slot.stage): worker.devices[0] // 3
            for worker in plan.workers
            for slot in worker.slots
        }
        assert all(found == mini_batch % 2 for (mini_batch, _), found in machine.items())

    def test_memory_decides_when_it_is_asked_to(self) -> None:
        """Both layers need 5 GB, one is 1 GB and two mini-batches deep, the other 4 GB: a pipeline fits 4.5
        GB.
        """
        model = layers([1, 1], [1e9, 4e9])
        hardware = cluster(2, 1, memory=45 * 10**8, network=link(1e30))
        assert shape(planned(model, hardware)) == [(0, 2, 2)]
        assert shape(planned(model, hardware, check_memory=True)) == [(0, 1, 1), (1, 2, 1)]
        small = cluster(2, 1, memory=35 * 10**8, network=link(1e30))
        with pytest.raises(Infeasible, match="no split keeps"):
            PipeDream(check_memory=True).place(model, small, 1, estimate(model, small))

    def test_machines_that_differ_are_refused(self) -> None:
        one, other = cluster(1, 1), cluster(1, 2)
        mixed = replace(one, groups=(*one.groups, *other.groups))
        with pytest.raises(BadInput, match="machines differ"):
            PipeDream().place(layers([1], [0]), mixed, 1, estimate(layers([1], [0]), mixed))


class TestPipeline:
    def test_versions_are_four_three_two_one(self) -> None:
        """Four equal stages without communication; the span of 8 mini-batches is that of 1F1B: (8
        + 3) * 3.
        """
        model = chain(4, parameter_bytes=4e12)
        hardware = cluster(4, 1, memory=10**30, network=link(1.0))
        plan = planned(model, hardware, mini_batches=8, transfers=False)
        assert shape(plan) == [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1)]
        assert [stage.weight_versions for stage in plan.stages] == [4, 3, 2, 1]
        found = simulate(plan, estimate(model, hardware))
        assert found.step_time == pytest.approx(33)
        assert [usage.live_micro_batches for usage in found.memory] == [4, 3, 2, 1]
        parameters = 1e12
        states = estimate(model, hardware).states
        assert found.memory[0].persistent == pytest.approx(parameters * (states.total + 3 * states.weight))

    def test_noam_fills_the_pipeline(self) -> None:
        assert in_flight([3, 1]) == [2, 1]
        assert in_flight([1, 1, 1, 1]) == [4, 3, 2, 1]
        assert in_flight([15, 1]) == [2, 1]

    def test_mini_batches_go_round_robin_over_replicas(self) -> None:
        text = [" ".join(map(str, replica_order(0, replica, 2, 2, 6))) for replica in (0, 1)]
        assert text == ["F0.0 F2.0 B0.0 F4.0 B2.0 B4.0", "F1.0 F3.0 B1.0 F5.0 B3.0 B5.0"]

    def test_replicas_reduce_every_round(self) -> None:
        """Two replicas, four mini-batches of 3 s, 3 s to reduce: each worker's two all-reduces hide all but
        the last.
        """
        model = layers([3.0], [3.0])
        hardware = machines(2, 1.0)
        plan = planned(model, hardware, mini_batches=4)
        found = simulate(plan, estimate(model, hardware))
        assert found.step_time == pytest.approx(2 * 3 + 3)
        assert found.communication_bytes == pytest.approx(2 * 3)

    @given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 30))
    def test_any_replicas_run_without_deadlock(self, replicas: list[int], mini_batches: int) -> None:
        held, done = in_flight(replicas), set()
        orders = {
            (s, r): list(replica_order(s, r, count, held[s], mini_batches))
            for s, count in enumerate(replicas)
            for r in range(count)
        }
        advanced = True
        while advanced:
            advanced = False
            for (stage, _), order in orders.items():
                while order:
                    slot = order[0]
                    neighbor = stage + (-1 if slot.kind == "F" else 1)
                    if 0 <= neighbor < len(replicas) and slot._replace(stage=neighbor) not in done:
                        break
                    done.add(order.pop(0))
                    advanced = True
        assert len(done) == 2 * mini_batches * len(replicas)


class TestSearch:
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=5),
        st.lists(st.integers(0, 9), min_size=5, max_size=5),
        st.integers(1, 4),
        st.integers(0, 6),
    )
    def test_it_is_the_optimum_of_its_own_objective(
        self, times: list[int], parameters: list[int], devices: int, output: int
    ) -> None:
        model = layers([float(t) for t in times], [float(p) for p in parameters[: len(times)]], float(output))
        found = search(cuts_of(model), [ClusterLevel(devices, 1.0)], StageSearchRules())
        assert found.seconds == pytest.approx(brute_force(model, devices, float(output)))

    @given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 4))
    def test_more_devices_are_never_slower_when_nothing_is_sent(self, times: list[int], devices: int) -> None:
        model = layers([float(t) for t in times], [0.0] * len(times))
        assert search(
            cuts_of(model), [ClusterLevel(devices, 1.0)], StageSearchRules()
        ).seconds == pytest.approx(sum(times) / devices)


def brute_force(model: LayerGraph, devices: int, output: float) -> float:
    """Every split into stages and every number of replicas that adds up."""
    count, best = len(model), float("inf")
    seconds = model.forward_seconds + model.backward_seconds
    for cut in range(count):
        for borders in itertools.combinations(range(1, count), cut):
            edges = [0, *borders, count]
            for replicas in itertools.product(range(1, devices + 1), repeat=cut + 1):
                if sum(replicas) != devices:
                    continue
                slowest = 0.0
                for s, (begin, end) in enumerate(itertools.pairwise(edges)):
                    m, w = replicas[s], float(model.parameter_bytes[begin:end].sum())
                    slowest = max(slowest, (float(seconds[begin:end].sum()) + 4 * (m - 1) * w / m) / m)
                    crossing = (begin > 0) + 0.0, (begin > 0 and end < count) + 0.0
                    slowest = max(slowest, 2 * output * max(crossing) / m)
                best = min(best, slowest)
    return best


class TestCuts:
    def diamond(self) -> LayerGraph:
        """Layer 0 is read by 1 and 2, both by 3; outputs of 1, 2, 4 and 8 bytes."""
        made = layers([1, 1, 1, 1], [0, 0, 0, 0])
        return replace(
            made,
            predecessors=Ragged.of([[], [0], [0], [1, 2]]),
            output_bytes=np.array([1.0, 2.0, 4.0, 8.0]),
        )

    def test_both_branches_may_come_first(self) -> None:
        """{0}, {0,1}, {0,2}, {0,1,2}, all; layer 0 still crosses until both branches are in, and as released
        even then.
        """
        cuts = cuts_of(self.diamond())
        assert cuts.ends == (1, 2, 0, 3, 4)
        assert cuts.output.tolist() == [1, 3, 5, 7, 8]
        assert cuts.before.sum() == 9  # of ten pairs only {0,1} and {0,2} are not one in the other
        assert cuts.placeable().ends == (1, 2, 3, 4)

    def test_a_cut_that_no_run_of_layers_makes_is_placed_as_well_as_can_be(self) -> None:
        """Layers of 3, 6, 3 and 0 s: 0 and 2 against 1 and 3 take 6 s; in the order of layers it is 0 and 1,
        9 s.
        """
        seconds = np.array([3.0, 6.0, 3.0, 0.0])
        model = replace(
            self.diamond(),
            forward_seconds=seconds / 3,
            backward_seconds=seconds * 2 / 3,
            parameter_bytes=np.full(4, 100.0),
            output_bytes=np.zeros(4),
        )
        plan = planned(model, machines(2, 1.0))
        assert plan.notes["pipeline_time"] == pytest.approx(6.0)
        assert plan.notes["placed_pipeline_time"] == pytest.approx(9.0)
        assert plan.stages[-1].end == 4

    def test_too_many_cuts_leave_those_between_consecutive_layers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cuts_module, "MOST_CUTS", 4)
        assert cuts_of(self.diamond()).ends == (1, 2, 3, 4)


OPEN_PLANNER = "parallel/pipedream_planner_open.json"


def profile(shared_data: Path, name: str) -> LayerGraph:
    file = shared_data / f"parallel/pipedream_profiles/{name}.txt"
    graph: LayerGraph = open_file(file, "auto", WorkloadOptions()).reading.value
    return graph


@pytest.mark.parametrize("case", range(8))
def test_the_released_planners_times(shared_data: Path, case: int) -> None:
    """Its pipeline time within 1e-5 s, its data-parallel time too; equally fast splits may differ."""
    published = json.loads((shared_data / OPEN_PLANNER).read_text())["cases"][case]
    bandwidths = [link(value) for value in published["bw_Bps"]]
    if len(bandwidths) == 1:
        hardware = cluster(published["machines"][0], 1, network=bandwidths[0])
    else:
        inner, outer = published["machines"]
        hardware = cluster(outer, inner, link=bandwidths[0], network=bandwidths[1])
    plan = planned(profile(shared_data, published["model"]), hardware)
    assert plan.notes["placed_pipeline_time"] == pytest.approx(published["pp_time_s"], abs=1e-5)
    assert plan.notes["data_parallel_time"] == pytest.approx(published["dp_time_s"], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "machines_", "seconds"),
    [
        ("resnet50", (4,), 0.162880924),
        ("gnmt", (4,), 0.025868),
        ("gnmt", (4, 4), 0.012582912),
        ("resnet18", (4, 4), 0.025246634),
        ("squeezenet1_0", (4, 4), 0.018805639),
    ],
)
def test_graphs_with_branches(
    shared_data: Path, name: str, machines_: tuple[int, ...], seconds: float
) -> None:
    """Times of the released planner (msr-fiddle/pipedream@7db6a1c) with
    ``activation_compression_ratio=1``.
    """
    found = search(
        cuts_of(profile(shared_data, name)),
        [
            ClusterLevel(count, bandwidth)
            for count, bandwidth in zip(machines_, [1e10, 1e9][-len(machines_) :], strict=True)
        ],
        StageSearchRules(),
    )
    assert found.seconds == pytest.approx(seconds, abs=1e-8)
