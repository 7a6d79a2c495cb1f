"""``disb``: workloads of the DL inference serving benchmark that came with REEF (JSON).

Tasks have a load and a client. A load is ``periodic`` or ``poisson`` with its ``frequency``, a ``trace`` of
milliseconds, or ``continuous``: the next request when the last is answered. A continuous task is best effort,
unless it has a ``priority`` or a name that ends with ``_rt``; all others are real-time. What passes cost is
not in the file: kernels of REEF's profiles, next to it or where ``options.extra`` says, are found by the
names of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.scenario_costs import LONGEST, as_object, is_number, numbers, read_cost
from experiments.readers.scenario_files import SideFiles, read_alone, read_bundle, side_folder
from experiments.readers.serving_scenario import apply_options, refuse_too_many
from experiments.workloads.scenario import BEST_EFFORT, CLOSED, REAL_TIME, Scenario, ScenarioModel

MOST_TASKS, HIGHEST_RATE = 1000, 1e7
LOADS = ("periodic", "poisson", "trace", "continuous")
MILLISECOND = 1e-3
#: The profile of each of the benchmark's models; of others, the one of their own name.
KERNELS = {
    "densenet201-imagenet": "densenet",
    "distilbert": "bert",
    "inceptionv3-imagenet": "inception",
    "resnet152-imagenet": "resnet152",
    "vgg19-imagenet": "vgg",
}


def _recognizes(head: bytes, name: str) -> bool:
    return head.lstrip().startswith(b"{") and b'"tasks"' in head and b'"load"' in head and b'"client"' in head


def _read(files: SideFiles, data: bytes, name: str, options: WorkloadOptions) -> Reading:
    document = as_object(jsonio.loads(data, name), name)
    duration, tasks = document.get("time"), document.get("tasks")
    if not is_number(duration, 1e-9, LONGEST):
        raise BadInput(f"{duration!r:.60}", f"{name}: time", f"seconds, above 0 to {LONGEST:g}")
    if not isinstance(tasks, list) or not 0 < len(tasks) <= MOST_TASKS:
        raise BadInput(f"{tasks!r:.60}", f"{name}: tasks", f"a list of 1 to {MOST_TASKS} tasks")
    models = tuple(_model(row, f"{name}: tasks[{place}]", files) for place, row in enumerate(tasks))
    names = [model.name for model in models]
    twice = next((place for place, one in enumerate(names) if one in names[:place]), None)
    if twice is not None:
        what = f"{names[twice]!r:.60} appears twice"
        raise BadInput(what, f"{name}: tasks[{twice}].id", "a name of its own")
    scenario = apply_options(Scenario(name, float(duration), models, facts={"files": files.digests}), options)
    refuse_too_many(scenario)
    used = sorted({one.cost.name for one in models})  # type: ignore[union-attr]
    return Reading(scenario, (f"kernels by the names of models, from {', '.join(used)}: weights of no size",))


def _model(row: Any, where: str, files: SideFiles) -> ScenarioModel:
    task = as_object(row, where)
    load, client = (
        as_object(task.get("load"), f"{where}.load"),
        as_object(task.get("client"), f"{where}.client"),
    )
    if client.get("batch_size", 1) != 1:
        raise BadInput(
            f"{client['batch_size']!r:.60}", f"{where}.client.batch_size", "1, as kernels are told"
        )
    name, served = task.get("id"), client.get("model_name")
    for value, field in ((name, "id"), (served, "client.model_name")):
        if not isinstance(value, str) or not 0 < len(value) <= 200:
            raise BadInput(f"{value!r:.60}", f"{where}.{field}", "a name")
    stem = KERNELS.get(str(served), str(served).removesuffix("-imagenet"))
    cost = read_cost({"kernels": f"{stem}.json"}, f"{where}.client.model_name", files)
    return ScenarioModel(str(name), cost.cost, **_load(load, str(name), f"{where}.load"))


def _load(load: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """Rate, process, times and class."""
    kind = load.get("type")
    if kind not in LOADS:
        raise BadInput(f"{kind!r:.60}", f"{where}.type", f"one of {', '.join(LOADS)}")
    if kind == "continuous":
        is_real_time = "priority" in load or name.endswith("_rt")
        return {"arrivals": CLOSED} if is_real_time else {"service_class": BEST_EFFORT}
    if kind == "trace":
        times = numbers(load.get("trace"), f"{where}.trace", 0, LONGEST / MILLISECOND)
        return {"times": tuple(MILLISECOND * time for time in sorted(times)), "service_class": REAL_TIME}
    rate = load.get("frequency")
    if not is_number(rate, 1e-9, HIGHEST_RATE):
        raise BadInput(f"{rate!r:.60}", f"{where}.frequency", f"requests a second, up to {HIGHEST_RATE:g}")
    return {"rate": float(rate), "arrivals": "constant" if kind == "periodic" else "poisson"}


READER = Reader(
    "disb",
    "requests",
    "workloads of the DL inference serving benchmark (JSON: time, tasks with load and client); options.extra "
    "has the kernels of the models as REEF profiles them, unless they are next to it",
    _recognizes,
    read_alone(_read),
    bundle=read_bundle(_read),
    side_file=side_folder,
)
