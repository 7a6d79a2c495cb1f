"""C++ schedules on this host: right before they are timed, and each way to fail by its name."""

import ctypes
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.compilation.interface.tuning import (
    Contraction,
    ScheduleSpace,
    TuningProposal,
    TuningTask,
    TuningTrial,
)
from experiments.compilation.live.tuning import cpp
from experiments.compilation.live.tuning.operators import conv2d, matmul
from experiments.compilation.planning.tuning.schedules import schedule_of, sketch_space, template_space
from experiments.compilation.planning.tuning.sketches import Sketch
from experiments.core.errors import BadInput
from experiments.core.spec import Outcome, load_spec
from experiments.run import run

pytestmark = pytest.mark.torch
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this host")

WAYS = ("tile", "fused-1", "fused-2", "rfactor-outer", "rfactor-inner")
NESTS = (
    matmul(12, 16, 20),
    matmul(4, 32, 6, batch=3),
    conv2d((2, 3, 9, 8), (8, 3, 3, 2), (2, 1), (1, 2)),
    conv2d((1, 4, 7, 7), (16, 4, 3, 3), (1, 1), (0, 0), (2, 1)),
)
KERNEL = 'extern "C" void kernel(const float* in0, const float* in1, float* out)'


def spaces(nest: Contraction) -> tuple[ScheduleSpace, ScheduleSpace]:
    sketches = tuple(Sketch((("out", way),)) for way in WAYS)
    return sketch_space(nest, sketches), template_space(nest)


@needs_compiler
def test_any_schedule_of_any_nest_is_the_reference_within_rounding(tmp_path: Path) -> None:
    """Schedules at random of four nests, with strides, padding and dilation, in one library."""
    from experiments.compilation.live.tuning.child import difference
    from experiments.compilation.live.tuning.reference import operands_of

    rng, programs = np.random.default_rng(0), []
    for nest in NESTS:
        sketched, template = spaces(nest)
        configs = [template.config(point) for point in template.fresh(3, set(), rng)]
        drawn = sketched.fresh(len(WAYS), set(), rng)
        configs += [{**sketched.config(point), "sketch": way} for point, way in zip(drawn, WAYS, strict=True)]
        programs += [(nest, schedule_of(nest, config)) for config in configs]
    texts = [
        re.sub("void (kernel|release)", rf"void \g<1>{i}", cpp.source(*program))
        for i, program in enumerate(programs)
    ]
    texts = [f"namespace n{i} {{\n{text}}}\n" for i, text in enumerate(texts)]
    (tmp_path / "all.cpp").write_text("#include <cstdlib>\n#include <cstring>\n" + "".join(texts))
    flags = ["-O0", "-fopenmp", "-shared", "-fPIC", "-w"]
    subprocess.run(["g++", *flags, str(tmp_path / "all.cpp"), "-o", str(tmp_path / "all.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "all.so"))
    for i, (nest, schedule) in enumerate(programs):
        data = operands_of(nest, seed=i)
        in0, in1 = data.in0.numpy(), data.in1.numpy()
        reference, bound = data.reference.numpy(), data.bound.numpy()
        out = np.full(reference.shape, np.nan, dtype=np.float32)
        library[f"kernel{i}"](*(ctypes.c_void_p(array.ctypes.data) for array in (in0, in1, out)))
        assert not difference(out, reference, bound), schedule
        library[f"release{i}"]()


@needs_compiler
def test_a_program_that_is_wrong_or_crashes_or_hangs_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.compilation.live.tuning import host

    nest = matmul(2, 2, 2)
    bodies = iter(
        (
            "{ for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) out[2 * i + j] ="
            " in0[2 * i] * in1[j] + in0[2 * i + 1] * in1[2 + j]; }",
            "{ for (int i = 0; i < 4; ++i) out[i] = in0[i] * in1[i]; }",
            "{ __builtin_trap(); }",
            "{ for (volatile int i = 0;;) i = 0; }",
            "{ no such name; }",
        )
    )
    monkeypatch.setattr(host, "FLAGS", ("-O1", "-shared", "-fPIC"))
    monkeypatch.setattr(cpp, "source", lambda *_: f'{KERNEL} {next(bodies)} extern "C" void release() {{}}')
    task = TuningTask("product", "matmul", template_space(nest), nest=nest)
    trials: list[TuningTrial] = []
    with closing(host.HostBench([task], tmp_path, seed=0, threads=1)) as bench:
        for index in range(5):
            trials += bench.measure([TuningProposal(0, index)])
            monkeypatch.setattr(host, "RUN_SECONDS", 20.0 if index != 2 else 1.0)
    assert [trial.error for trial in trials] == [
        "",
        "wrong answer",
        "device",
        "run time-out",
        "host compiler",
    ]
    assert len(trials[0].repeats) == host.REPEATS
    assert trials[1].detail.startswith("element [0, 0] is ")
    assert trials[2].detail == "the schedule's process ended with SIGILL"


def outcome(policy: str, source: str = "zoo:mlp", **knobs: Any) -> Outcome:
    workload = {"source": source, "options": {"batch": 8}}
    spec = {"family": "compilation", "policy": policy, "workload": workload, "hardware": "local"}
    return run(load_spec({**spec, "mode": "measured", "knobs": knobs}))


@needs_compiler
def test_the_operators_of_a_model_are_tuned_and_stand_beside_torchs() -> None:
    found = outcome("ansor", trials=2, tasks=2, threads=1)
    metrics = {name: entry["value"] for name, entry in found.metrics.items()}
    rows = found.plan["tasks"]
    assert found.status == "ok"
    assert [row["trials"] for row in rows] == [1, 1], "a round for each before any has a second"
    assert metrics["trials"] == 2
    assert metrics["latency"] == pytest.approx(sum(row["calls"] * row["seconds"] for row in rows))
    assert metrics["speedup_low"] <= metrics["speedup"] <= metrics["speedup_high"]
    assert all(row["speedup_low"] <= row["speedup"] <= row["speedup_high"] for row in rows)
    best = sum(row["calls"] * row["best_seconds"] for row in rows)
    assert found.series["best_so_far"]["y"][-1] == pytest.approx(best)
    notes = found.provenance["tuning"]
    assert (notes["language"], notes["threads"], notes["clock"]) == ("c++", 1, "processor time")


def test_what_a_host_lacks_is_unsupported_and_not_a_failure() -> None:
    import torch
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("no-such-compiler",)}):
        found = outcome("autotvm", trials=4, language="c++")
    assert found.status == "infeasible"
    assert "unsupported here: no C++ compiler on this host" in str(found.reason)
    if not torch.cuda.is_available():
        assert "unsupported here" in str(outcome("autotvm", trials=4, language="triton").reason)


def test_fewer_trials_than_operators_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one for each of 2 operators"):
        outcome("ansor", trials=1, tasks=2)
