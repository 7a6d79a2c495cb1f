"""Writes the scenarios of PipeSwitch's study: a model that is asked while ResNet152 trains on the same V100.

    python -m benchmarks.switching_scenarios [--out experiments/suites/traces/serving]

Layers are those of the zoo with weights, in the order of a pass; what has none counts with the layer before.
Their shares of a pass are the sheet's roofline; a pass alone lasts what the authors' log says
(netx-repo/PipeSwitch, Apache-2.0, log of 2021-10-19, "func cost"). A request's way to the device (a socket,
two processes, the copy of its input) is in proportion to its bytes, by one model's requests to a ready model:
ResNet152's. The trained model is ResNet152 at the authors' batch of 64, backward twice as long as forward.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.switching_kernels import ITERATION, TRAINED_IN_MPS, WEIGHTS, kernel_rows
from experiments.core.options import WorkloadOptions
from experiments.core.package_files import FOLDER
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.sources import step_of
from experiments.workloads.step import Step

DEVICE = "v100-16g"
#: The authors' batches of requests and of training.
ASKED, TRAINED = 8, 64
#: One request, s: every variant has to stop training inside the same layer.
TIMES = (1.0,)
DURATION = 1.5
#: Under MPS, where it counts what training is at: often, at all moments of its step.
TIMES_IN_MPS, DURATION_IN_MPS = tuple(round(1 + 2.3 * place, 1) for place in range(40)), 94.0


class Study(NamedTuple):
    """A model that is asked: in the zoo, tokens, modules that run, bytes of a request, seconds of a pass."""

    zoo: str
    sequence: int | None
    modules: str
    input_bytes: int
    seconds: float


FLOAT, INTEGER = 4, 8
STUDIES = {
    "resnet152": Study("resnet152", None, "", ASKED * 3 * 224**2 * FLOAT, 0.02515411376953125),
    "inception-v3": Study("inception-v3", None, "", ASKED * 3 * 299**2 * FLOAT, 0.020576953887939453),
    "bert-base": Study("bert-base", 251, "encoder", ASKED * 2 * 251 * INTEGER, 0.038677215576171875),
}
#: A request to a ready ResNet152 lasts 37.064 ms in the log, of which its pass takes 25.154 ms.
SECONDS_PER_BYTE = (0.03706399069892036 - STUDIES["resnet152"].seconds) / STUDIES["resnet152"].input_bytes


#: Modules of a block of BERT by the group in which the authors copy them; the rest of the encoder is two.
BERT_GROUPS = {"attention": 0, "norm1": 0, "feed.0": 1, "feed.2": 2, "norm2": 2}


class Layer(NamedTuple):
    """``block`` names the group of the authors' released models to which the layer belongs."""

    seconds: float
    bytes: float
    block: str


def layers_of(study: Study) -> list[Layer]:
    """Return the layers of a pass, which lasts what was measured."""
    layers = list(_layers(step_of_study(study), study.modules))
    scale = study.seconds / sum(layer.seconds for layer in layers)
    return [layer._replace(seconds=layer.seconds * scale) for layer in layers]


def step_of_study(study: Study, batch: int = ASKED, training: bool = False) -> Step:
    """Return a pass or a training step of the zoo's model."""
    options = WorkloadOptions(batch=batch, training=training, dtype="float32", sequence=study.sequence)
    step, _ = step_of(Workload(f"zoo:{study.zoo}", options=options), resolve(DEVICE).device)
    return step


def _layers(step: Step, within: str) -> Iterator[Layer]:
    """An op begins a layer where a module's weights are first read."""
    known: set[int] = set()
    module, seconds, size = "", 0.0, 0.0
    for op in range(len(step.ops)):
        owner = step.ops.module[op]
        if not owner.startswith(within):
            continue
        new = [int(one) for one in step.inputs[op] if step.tensors.kind[one] in WEIGHTS and one not in known]
        known.update(new)
        if new and size and owner != module:
            yield Layer(seconds, size, block_of(module))
            seconds = size = 0.0
        module = owner if new else module
        seconds += float(step.ops.seconds[op])
        size += float(sum(step.tensors.bytes[one] for one in new))
    yield Layer(seconds, size, block_of(module))


def block_of(module: str) -> str:
    """Return what the authors copy at once: a convolutional model's block, three parts of each of BERT's."""
    head, *rest = module.split(".")
    if head == "features":
        return f"{head}.{rest[0]}"
    if head == "encoder" and rest[0] == "blocks":
        part = next(group for name, group in BERT_GROUPS.items() if ".".join(rest[2:]).startswith(name))
        return f"block {rest[1]}, {part}"
    return "embeddings" if head == "encoder" and rest[0] != "pooler" else module


def training_layers(asked: Sequence[Layer]) -> list[Layer]:
    """Return a training iteration of the model whose pass over requests is ``asked``."""
    more = TRAINED / ASKED
    forward = [layer._replace(seconds=layer.seconds * more) for layer in asked]
    return [*forward, *(Layer(2 * layer.seconds, 0.0, "") for layer in reversed(forward))]


def scenario(study: Study, trained: Sequence[Layer]) -> dict[str, Any]:
    """Return a scenario as the lab reads it."""
    return _scenario(study, DURATION, TIMES, _rows_with_blocks(layers_of(study)), _rows(trained))


def scenario_of_kernels(study: Study, trained: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the scenario for MPS; ``trained`` are the kernels of a training step."""
    asked = kernel_rows(step_of_study(study), study.modules, study.seconds)
    return _scenario(study, DURATION_IN_MPS, TIMES_IN_MPS, asked, trained)


def _scenario(
    study: Study, duration: float, times: Sequence[float], asked: Sequence[Any], trained: Sequence[Any]
) -> dict[str, Any]:
    way = round(study.input_bytes * SECONDS_PER_BYTE, 9)
    front = {"name": "asked", "times": times, "class": "real_time", "preprocess": way, "layers": asked}
    back = {"name": "trained", "rate": 0, "class": "training", "layers": trained}
    return {"duration": duration, "models": [front, back]}


def _rows(layers: Sequence[Layer]) -> list[dict[str, float]]:
    return [{"seconds": round(layer.seconds, 9), "bytes": layer.bytes} for layer in layers]


def _rows_with_blocks(layers: Sequence[Layer]) -> list[dict[str, float]]:
    number = {block: place for place, block in enumerate(dict.fromkeys(layer.block for layer in layers))}
    return [{**row, "block": number[layer.block]} for row, layer in zip(_rows(layers), layers, strict=True)]


def files() -> Iterator[tuple[str, bytes]]:
    """Yield every scenario: its name, and its content."""
    resnet = STUDIES["resnet152"]
    trained = training_layers(layers_of(resnet))
    kernels = kernel_rows(step_of_study(resnet, TRAINED_IN_MPS, training=True), "", ITERATION)
    for name, study in STUDIES.items():
        yield f"mps-{name}.json", json.dumps(scenario_of_kernels(study, kernels)).encode() + b"\n"
        yield f"switch-{name}.json", json.dumps(scenario(study, trained)).encode() + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER / "serving")
    out = parser.parse_args().out
    for name, content in files():
        (out / name).write_bytes(content)
        print(f"{name:28} {len(content):8,d} bytes")


if __name__ == "__main__":
    main()
