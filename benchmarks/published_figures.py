"""Writes the published figures that papers' claims need, in the lab's own formats, from the original files.

    python -m benchmarks.published_figures [--data ../shared/data] [--out experiments/suites/traces]

- ``g10/*.step``: the five steps of G10's overall comparison (platformxlab/G10, Apache-2.0), each with its
  side table, as steps of this lab.
- ``roller-times-v100.txt``: the times of figure 10 of Roller (microsoft/nnfusion, MIT) for the operators of
  ``roller-operators.txt``, in the order of that list.

Each has in its header where it comes from, the license and the SHA-256 of every original file.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.core.options import WorkloadOptions
from experiments.core.package_files import FOLDER
from experiments.readers.base import Opened, open_file
from experiments.readers.operator_times import MILLISECOND, operator_times
from experiments.readers.step_file import ORIGIN
from experiments.workloads import storage
from experiments.workloads.step import Step

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
#: Names here, and the files of the release.
STEPS = {
    "bert-256": "BERT_Base_256.json.gz",
    "vit-1280": "VIT_1280.json.gz",
    "inceptionv3-1536": "Inceptionv3_1536.json.gz",
    "resnet152-1280": "ResNet152_1280.json.gz",
    "senet154-1024": "SENet154_1024.json.gz",
}
G10 = {
    "project": "platformxlab/G10",
    "commit": "de2c8c6f",
    "license": "Apache-2.0",
    "changes": "ops and tensors as columns, times in seconds, phases and kinds of tensors by use",
}
OPERATORS, TIMES = "roller-operators.txt", "roller-times-v100.txt"
FIGURE_10 = "Figure10_op_perf_multi_v100.paper.dat"
ABOUT_TIMES = """\
# Milliseconds of the operators of roller-operators.txt on a V100, as in figure 10 of Roller (OSDI 2022).
# Figures of microsoft/nnfusion, branch osdi22_artifact (MIT license); here in this list's order, a line each.
# SHA-256 of the original, {name}:
# {digest}
"""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def doubts(path: Path, opened: Opened) -> tuple[str, ...]:
    """Return what is hard to believe in a file, by itself and next to the others of its folder."""
    ask = opened.reader.doubts
    return (*opened.reading.warnings, *(ask(path, opened.reading) if ask else ()))


def origin(path: Path, side: Path, opened: Opened) -> dict[str, Any]:
    """Return the header of a step: where its figures come from, and what its reader says about them."""
    files = {f"{file.parent.name}/{file.name}": digest(file) for file in (path, side)}
    said = {"assumed": list(opened.reading.assumed), "doubts": list(doubts(path, opened))}
    return {**G10, "files": files, **said}


def published_step(data: Path, file: str) -> Step:
    """Return a step of G10's release with its side table, and its origin among its facts."""
    path, side = data / "memory/g10" / file, data / "memory/g10_extra" / file
    opened = open_file(path, "g10", WorkloadOptions(extra=str(side)))
    step: Step = opened.reading.value
    return replace(step, facts={**step.facts, ORIGIN: origin(path, side, opened)})


def times_table(data: Path) -> str:
    """Return Roller's figure 10 as a table of this lab: a line for each operator of the list."""
    path = data / "compilation/roller_osdi22" / FIGURE_10
    listed = open_file(FOLDER / OPERATORS, "operators", WorkloadOptions()).reading.value.operators
    times = operator_times(str(path), [operator.name for operator in listed])
    rows = [["operator", *times], *(_row(operator.name, times) for operator in listed)]
    about = ABOUT_TIMES.format(name=path.name, digest=digest(path))
    return about + "".join("\t".join(row) + "\n" for row in rows)


def _row(operator: str, times: Mapping[str, Mapping[str, float]]) -> list[str]:
    found = (known.get(operator) for known in times.values())
    return [operator, *("N/A" if seconds is None else milliseconds(seconds) for seconds in found)]


def milliseconds(seconds: float) -> str:
    """Return the shortest text that a reader turns into just these seconds."""
    texts = (f"{seconds / MILLISECOND:.{digits}g}" for digits in range(1, 18))
    return next(text for text in texts if float(text) * MILLISECOND == seconds)


def files(data: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of published figures: its name in the package, and its content."""
    for name, file in STEPS.items():
        yield f"g10/{name}.step", storage.dumps(published_step(data, file))
    yield TIMES, times_table(data).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with the original files")
    parser.add_argument("--out", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    for name, content in files(chosen.data):
        target = chosen.out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        print(f"{name:28} {len(content):8,d} bytes  {digest(target)}")


if __name__ == "__main__":
    main()
