"""What a pass of a scenario's model costs, from the one field of its row that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from experiments.core.errors import BadInput
from experiments.readers.batch_profile import MOST_BATCH, read_nexus_profile
from experiments.readers.scenario_files import SideFiles
from experiments.workloads.encoders import ENCODERS
from experiments.workloads.scenario import (
    BatchProfile,
    Cost,
    FixedCost,
    KernelFile,
    LayerCosts,
    PublishedSizes,
)

LONGEST, MOST_LAYERS, LARGEST = 1e8, 100_000, 1e15
USUAL_SEQUENCE, LONGEST_SEQUENCE = 2048, 10**7


@dataclass(frozen=True)
class ReadCost:
    """A cost, and what its file tells of the model where the row does not."""

    cost: Cost
    bytes: float = 0.0
    preprocess: float = 0.0
    postprocess: float = 0.0


def read_cost(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    """Return the cost that the row of a model names; ``BadInput`` for none or for several."""
    named = [name for name in COSTS if name in row]
    if len(named) != 1:
        what = f"has {' and '.join(named)}" if named else "has no cost"
        raise BadInput(what, where, "one of " + ", ".join(COSTS))
    return COSTS[named[0]](row, f"{where}.{named[0]}", files)


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value of JSON that is an object; ``BadInput`` for any other."""
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.60} is no object", where, "a JSON object")
    return value


def is_number(value: Any, low: float, high: float) -> TypeGuard[float]:
    """Whether a value of JSON is a number from ``low`` to ``high``."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def numbers(value: Any, where: str, low: float, high: float) -> tuple[float, ...]:
    """Return a list of numbers within bounds; ``BadInput`` names the first that is none."""
    if not isinstance(value, list) or not value:
        raise BadInput(f"{value!r:.60}", where, "a list of numbers")
    for place, entry in enumerate(value):
        if not is_number(entry, low, high):
            raise BadInput(f"{entry!r:.60}", f"{where}[{place}]", f"a number from {low:g} to {high:g}")
    return tuple(map(float, value))


def _fixed(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    seconds = row["latency"]
    if not is_number(seconds, 1e-9, LONGEST):
        raise BadInput(f"{seconds!r:.60}", where, f"seconds, from 1e-09 to {LONGEST:g}")
    return ReadCost(FixedCost(float(seconds)))


def _profile(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    value = row["profile"]
    if not isinstance(value, dict) or not {"batch", "latency"} <= value.keys() <= {*PROFILE}:
        raise BadInput(f"{value!r:.60}", where, "{batch: [...], latency: [s...]}, optionally memory")
    batch = numbers(value["batch"], f"{where}.batch", 1, MOST_BATCH)
    latency = numbers(value["latency"], f"{where}.latency", 1e-9, LONGEST)
    memory = numbers(value["memory"], f"{where}.memory", 0, LARGEST) if "memory" in value else ()
    if len(latency) != len(batch) or (memory and len(memory) != len(batch)):
        lengths = f"{len(batch)} batches, {len(latency)} latencies and {len(memory)} sizes"
        raise BadInput(lengths, where, "as many of each")
    if any(not one.is_integer() for one in batch) or sorted(set(batch)) != list(batch):
        raise BadInput(f"{batch!r:.80}", f"{where}.batch", "whole numbers, ascending")
    return ReadCost(BatchProfile(tuple(map(int, batch)), latency, memory), bytes=memory[0] if memory else 0.0)


def _profile_file(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    name = _file_name(row["profile_file"], where)
    found = read_nexus_profile(files.read(name, where), name)
    size = found.profile.memory[0]
    return ReadCost(found.profile, size, found.preprocess, found.postprocess)


def _layers(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    rows = row["layers"]
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_LAYERS:
        raise BadInput(f"{rows!r:.60}", where, f"a list of 1 to {MOST_LAYERS} layers")
    for place, layer in enumerate(rows):
        if not isinstance(layer, dict) or layer.keys() - {"block"} != {"seconds", "bytes"}:
            raise BadInput(f"{layer!r:.60}", f"{where}[{place}]", "{seconds, bytes} and perhaps block")
    seconds = numbers([layer["seconds"] for layer in rows], f"{where}.seconds", 0, LONGEST)
    sizes = numbers([layer["bytes"] for layer in rows], f"{where}.bytes", 0, LARGEST)
    if not any(seconds):
        raise BadInput("no layer takes time", where, "seconds above 0")
    return ReadCost(LayerCosts(seconds, sizes, _blocks(rows, where)), bytes=sum(sizes))


def _blocks(rows: Sequence[Mapping[str, Any]], where: str) -> tuple[int, ...]:
    """The block of each layer, where they are told: of all layers, ascending."""
    if not any("block" in layer for layer in rows):
        return ()
    told = numbers([layer.get("block") for layer in rows], f"{where}.block", 0, MOST_LAYERS)
    if any(not one.is_integer() for one in told) or list(told) != sorted(told):
        raise BadInput(f"{told!r:.60}", f"{where}.block", "whole numbers, ascending, one for each layer")
    return tuple(map(int, told))


def _kernels(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    name = _file_name(row["kernels"], where)
    path = PurePosixPath(name)
    profile = files.find(str(path.with_name(f"{path.stem}.profile.json")))
    data = files.read(name, where)
    return ReadCost(KernelFile(name, data, None if profile == data else profile))


def _sizes(row: Mapping[str, Any], where: str, files: SideFiles) -> ReadCost:
    name, sequence = row["sizes"], row.get("sequence", USUAL_SEQUENCE)
    if name not in ENCODERS:
        raise BadInput(f"{name!r:.60} has no sizes here", where, "one of " + ", ".join(ENCODERS))
    if not is_number(sequence, 1, LONGEST_SEQUENCE) or int(sequence) != sequence:
        raise BadInput(f"{sequence!r:.60}", f"{where}: sequence", f"tokens, 1 to {LONGEST_SEQUENCE}")
    return ReadCost(PublishedSizes(name, int(sequence)), bytes=ENCODERS[name].weight_bytes)


def _file_name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 4096:
        raise BadInput(f"{value!r:.60}", where, "the name of a file")
    return value


PROFILE = ("batch", "latency", "memory")
#: How the field of each name is read.
COSTS: Mapping[str, Callable[[Mapping[str, Any], str, SideFiles], ReadCost]] = {
    "latency": _fixed,
    "profile": _profile,
    "profile_file": _profile_file,
    "layers": _layers,
    "kernels": _kernels,
    "sizes": _sizes,
}
