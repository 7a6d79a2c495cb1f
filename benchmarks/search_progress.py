"""How searching policies bound themselves, report progress and answer a cancel, on inputs of real size.

Each policy plans for a model that takes it long: parallel ones for a transformer of 7 billion parameters on
64 A100s, memory ones for GPT-2 on a device with six tenths of what the step needs, compilation ones for
GPT-2's forward pass. ``gap`` is the longest time between two reports of progress once the model has been
read, ``reading`` the longest while it is built, traced or exported. A cancel is asked for in the middle of
what follows the reading, in a second run, and answered when the run has ended. Times are of this process's
own processor time unless ``--wall``.

Two of torch's calls report nothing and cannot be interrupted: ``run_decompositions`` of an exported program
(1 to 2 s for GPT-2 or ResNet-18) and, in ``reading`` as well, the capture of a training step. HiGHS reports
nothing either; it works in a thread of its own, which a cancel leaves behind.

    python benchmarks/search_progress.py [--policy flexflow ...] [--family parallel] [--most 600] [--wall]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.core import registry
from experiments.core.budget import ENDED_AT
from experiments.core.spec import Outcome, RunSpec, load_spec
from experiments.run import run

#: LLaMA 7B (Touvron et al., 2023).
SEVEN_BILLION = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
SIXTY_FOUR = {"cluster": {"nodes": 8, "devices_per_node": 8, "device": "a100-80g"}}
#: What makes a policy search where it does not by itself.
KNOBS: dict[str, dict[str, Any]] = {
    "megatron": {"strategy": "search"},
    "terapipe": {"stages": 32},
    "whale": {"strategy": "pipeline", "stages": 32, "micro_batches": 16},
    "zero_bubble": {"variant": "automatic", "stages": 32, "micro_batches": 32},
    "torch_knapsack": {"solver": "ilp"},
}
#: Models of those that plan for nothing else.
MODELS: dict[str, dict[str, Any]] = {
    "neo_4d": {"source": "zoo:dlrm", "options": {"batch": 65536}},
    "tutel": {"source": "zoo:moe", "options": {"batch": 64, "sequence": 512}},
    "pet": {"source": "zoo:resnet18", "options": {"batch": 4, "image": 224}},
}
#: Steps in which a model is built and read: what the planner does comes after them.
READING = ("building the model", "tracing the step", "reading the graph", "captured", "exporting the graph")
#: Columns of the table.
LINE = "{:<22}{:<24}{:<26}{:<6}{:>8}{:>7}{:>9}{:>8}  {:<11}{}"
#: Seconds of a gap and of an answer that are wanted.
WANTED = 1.0

#: By family: what bounds each search, and under which names its plan says how much it looked at.
SEARCHES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "parallel": {
        "flexflow": ("tasks", ("proposals",)),
        "optcnn": ("evaluations", ("configurations",)),
        "unity": ("evaluations", ("graphs_seen",)),
        "tofu": ("evaluations", ()),
        "alpa": ("programs", ("programs",)),
        "megatron": ("evaluations", ("plans_evaluated",)),
        "coloc_rl": ("updates", ("trials",)),
        "pipedream": ("evaluations", ("candidates",)),
        "dapple": ("evaluations", ("candidates",)),
        "gspmd": ("", ()),
        "terapipe": ("evaluations", ()),
        "whale": ("", ()),
        "neo_4d": ("evaluations", ("proposals",)),
        "tutel": ("", ()),
        "zero_bubble": ("", ()),
    },
    "memory": {
        "checkmate": ("nodes", ()),
        "combined": ("work", ("trials",)),
        "autotm": ("nodes", ("solutions",)),
        "tmof": ("nodes", ()),
        "swapadvisor": ("evaluations", ("evaluations",)),
        "deeptm": ("episodes", ()),
        "autoswap": ("trials", ()),
        "gradient_accumulation": ("", ("parts",)),
        "torch_knapsack": ("nodes", ()),
        "sentinel": ("", ()),
        "capuchin": ("", ()),
        "dtr": ("", ()),
        "modnn": ("", ("parts",)),
        "vdnn-dyn": ("", ()),
        "superneurons": ("", ()),
    },
    "compilation": {
        "taso": ("budget", ("explored",)),
        "metaflow": ("budget", ("explored",)),
        "unity_rewrites": ("budget", ("explored",)),
        "egglog": ("terms", ("terms",)),
        "pet": ("evaluations", ("mutants",)),
        "roller": ("visited", ("examined",)),
        "welder": ("visited", ("examined",)),
        "rammer": ("", ()),
    },
}


class Cancelled(Exception):
    """Raised by the watch once it has been told to stop."""


class TooLong(Exception):
    """Raised by the watch where a run takes longer than it may."""


@dataclass
class Watch:
    """The longest gaps between reports, in planning and in reading the model; ``stop_at`` and ``most`` are
    seconds. A gap belongs to the step that was reported before it.
    """

    clock: Callable[[], float]
    most: float
    stop_at: float = float("inf")
    began: float = 0.0
    last: float | None = None
    step: str = ""
    gap: float = 0.0
    slowest: str = ""
    reading_gap: float = 0.0
    read_until: float = 0.0

    def __call__(self, fraction: float, step: str) -> None:
        now = self.clock()
        gap = 0.0 if self.last is None else now - self.last
        if self.step in READING:
            self.reading_gap, self.read_until = max(gap, self.reading_gap), now - self.began
        elif gap > self.gap:
            self.gap, self.slowest = gap, self.step
        self.last, self.step = now, step
        if now - self.began > self.stop_at:
            raise Cancelled
        if now - self.began > self.most:
            raise TooLong


def specs(family: str, name: str, folder: Path) -> RunSpec:
    """The run of real size that a policy is asked for."""
    config = folder / "config.json"
    config.write_text(json.dumps(SEVEN_BILLION))
    gpt2 = {"source": "zoo:gpt2", "options": {"batch": 8, "sequence": 512}}
    given: dict[str, tuple[dict[str, Any], Any]] = {
        "parallel": (
            {"source": str(config), "options": {"batch": 64, "sequence": 512}},
            SIXTY_FOUR,
        ),
        "memory": (
            gpt2,
            {"device": "a100-80g", "overrides": {"memory_bytes": 6.5e9}, "remote": "optane-pmem"},
        ),
        "compilation": ({"source": "zoo:gpt2", "options": {"batch": 1, "sequence": 128}}, "v100-16g"),
    }
    workload, hardware = given[family]
    asked = {"family": family, "policy": name, "knobs": KNOBS.get(name, {}), "hardware": hardware}
    return load_spec({**asked, "workload": MODELS.get(name, workload)})


def row(family: str, name: str, folder: Path, most: float, clock: Callable[[], float]) -> list[str]:
    """One line of the table."""
    bound, counts = SEARCHES[family][name]
    spec = specs(family, name, folder)
    watch = Watch(clock, most, began=clock())
    try:
        outcome: Outcome | None = run(spec, watch)
    except TooLong:
        outcome = None
    seconds = clock() - watch.began
    knobs = registry.create(family, name, KNOBS.get(name, {})).knob_values()
    limit = f"{bound} = {knobs[bound]}" if bound else "-"
    middle = (watch.read_until + seconds) / 2
    return [
        name,
        looked_at(outcome, counts),
        limit,
        "yes" if outcome and ended_at(outcome) else "",
        f"{seconds:.1f}" if outcome else f"> {seconds:.0f}",
        f"{watch.gap:.2f}",
        f"{watch.reading_gap:.2f}",
        f"{cancelled_within(spec, middle, clock):.2f}",
        outcome.status if outcome else "stopped",
        watch.slowest[:40],
    ]


def looked_at(outcome: Outcome | None, names: tuple[str, ...]) -> str:
    plan = outcome.plan if outcome else {}
    said = {**plan, **plan.get("search", {}), **plan.get("notes", {})}
    return ", ".join(f"{name} {said[name]}" for name in names if name in said)


def ended_at(outcome: Outcome) -> str:
    """The sentence that says at which bound a search ended; in the reason where its plan does not fit."""
    said = outcome.plan.get(ENDED_AT) or outcome.plan.get("notes", {}).get(ENDED_AT)
    reason = outcome.reason or ""
    return str(said or (reason if "ended at its bound" in reason else ""))


def cancelled_within(spec: RunSpec, after: float, clock: Callable[[], float]) -> float:
    """Seconds from asking for a cancel, ``after`` so many of the run, until the run has ended."""
    watch = Watch(clock, float("inf"), stop_at=after, began=clock())
    try:
        run(spec, watch)
    except Cancelled:
        return max(0.0, clock() - watch.began - after)
    return 0.0


def chosen(family: str | None, policies: list[str] | None) -> Iterator[tuple[str, str]]:
    for own, names in SEARCHES.items():
        for name in names:
            if family in (None, own) and (not policies or name in policies):
                yield own, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=tuple(SEARCHES))
    parser.add_argument("--policy", nargs="*", help="policies of the table; all without it")
    parser.add_argument("--most", type=float, default=600.0, help="seconds after which a run is stopped")
    parser.add_argument("--wall", action="store_true", help="wall seconds instead of this process's own")
    given = parser.parse_args()
    clock = time.perf_counter if given.wall else time.process_time
    head = [
        "policy",
        "looked at",
        "bound",
        "ended",
        "seconds",
        "gap",
        "reading",
        "cancel",
        "status",
        "longest gap while",
    ]
    late = 0
    print(LINE.format(*head))
    with tempfile.TemporaryDirectory() as folder:
        for family, name in chosen(given.family, given.policy):
            cells = row(family, name, Path(folder), given.most, clock)
            print(LINE.format(*cells), flush=True)
            late += float(cells[5]) > WANTED or float(cells[7]) > WANTED
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
