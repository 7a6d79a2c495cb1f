"""Suites: named sets of runs in ``experiments/suites/*.toml``, for nightly benchmarks and paper tables.

::

    title = "Memory policies on GPT-2"
    [defaults]                 # merged into every run
    family = "memory"
    hardware = "a100-40g"
    [[run]]
    title = "vDNN, everything"
    policy = "vdnn-all"
    [run.workload]
    source = "zoo:gpt2"        # or "package:forty-jobs.csv", or "data/x.json" in a named folder
    [grid]                     # every one of its policies on every one of its workloads
    policies = ["baseline", "vdnn-all", {title = "dtr, fast", policy = "dtr", knobs = {...}}]
    [[grid.on]]                # title, and what else its runs have
    title = "GPT-2"
    workload = {source = "zoo:gpt2"}

``value`` names the metric of the table that such a grid makes; each metric of ``also`` has a table of its
own. Where runs say what was published (``published = 0.2727`` in a run, and on top ``published = "closed
form"`` what that is), the table has it next to ours with the error; of a run of which several metrics were
published, ``{avg_jct = 5302.0, makespan = 66299.0}``, it has a row each. Where ``within`` and ``median`` say
what errors were asked for (``within`` of a ``share`` of the rows), it says how many met them, and may have
``[[cited]]`` figures (title, published, reservation) that no run can be set against. Each run without a
``reservation`` has a verdict by the one rule (``docs/verdicts.md``). ``assumed`` is what a run takes for
granted where its source says nothing, and ``fitted`` marks rows that rates of hardware were fitted on. A
run's own ``value`` is the metric that its published figure is, where that is another than the suite's.
"""

from __future__ import annotations

import functools
import hashlib
import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.core import jsonio
from experiments.core.differences import EQUAL, NO_DIFFERENCE
from experiments.core.errors import BadInput
from experiments.core.metrics import METRICS
from experiments.core.package_files import is_package_file, path_of
from experiments.core.published_figures import Against, Agreement
from experiments.core.spec import RunSpec, load_spec

FOLDER = Path(__file__).resolve().parent.parent / "suites"
#: What a row of a suite has besides the spec of its run.
NOT_OF_THE_RUN = ("title", "published", "reservation", "assumed", "fitted", "value")
#: How the source of a workload begins that the user has to bring.
DATA = "data/"


@dataclass(frozen=True)
class Suite:
    """A title, what it is for, and the runs as ``(title, RunSpec JSON)``.

    ``value``, ``rows`` and ``columns`` (titles) are the table that the runs of a grid make: ``cell_title`` of
    a row and a column is the title of its run. ``also`` are metrics with a table of their own.
    ``published`` has such figures by title, and ``published_as`` says what they are;
    ``reservations`` say of some why there is no verdict, ``assumptions`` what runs take for granted;
    ``fitted`` are those that rates were fitted on. ``within`` (of a ``share``) and ``median`` are the errors
    asked for of the others. ``values`` are the metrics of runs whose figure is another than ``value``;
    ``several`` tells the run and the metric of each row of a run with several figures.
    """

    name: str
    title: str
    about: str
    runs: tuple[tuple[str, Mapping[str, Any]], ...]
    value: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)
    published_as: str = ""
    reservations: Mapping[str, str] = field(default_factory=dict)
    within: float | None = None
    median: float | None = None
    share: float = 1.0
    assumptions: Mapping[str, str] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    several: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def asks_for_data(self) -> bool:
        """Whether some workload lies in a folder that the user has."""
        return any(map(_has_users_files, dict(self.runs).values()))

    @property
    def asks_for_nodes(self) -> bool:
        """Whether some run's cluster is a list of nodes that the user has."""
        return any(_has_users_files(row.get("hardware")) for _, row in self.runs)

    @property
    def modes(self) -> tuple[str, ...]:
        """Whether its runs are measured, simulated, or both."""
        return tuple(sorted({str(row.get("mode", "simulated")) for _, row in self.runs}))

    def with_data(self, folder: Path) -> Suite:
        """Return the suite with the user's workloads taken from ``folder``.

        ``BadInput`` names one that is not there.
        """
        return replace(self, runs=tuple((title, _from(folder, row)) for title, row in self.runs))

    def value_of(self, title: str) -> str:
        """Return the metric that the figure published for a run is."""
        return self.values.get(title, self.value)

    def figure_of(self, row: str) -> tuple[str, str]:
        """Return the title of the run and the metric that a published figure stands for."""
        return self.several.get(row, (row, self.value_of(row)))

    @property
    def grid_metrics(self) -> tuple[str, ...]:
        """The metrics that have a table by workload and policy; none for a suite that is no grid."""
        return (self.value, *self.also) if self.rows else ()

    @functools.cached_property
    def digest(self) -> str:
        """Return the SHA-256 of all that its figures depend on: titles, specs, and the files it brings."""
        given = [row["workload"] for _, row in self.runs]
        extra = {one.get("options", {}).get("extra") or "" for one in given}
        named = {one["source"] for one in given} | extra
        files = {
            name: hashlib.sha256(path_of(name).read_bytes()).hexdigest()
            for name in sorted(named)
            if is_package_file(name)
        }
        return jsonio.digest({"runs": [[title, dict(row)] for title, row in self.runs], "files": files})

    def specs(self) -> list[tuple[str, RunSpec]]:
        return [(title, load_spec(dict(row))) for title, row in self.runs]


def suite_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """The suite called ``name``; ``BadInput`` names the file and the run that is wrong."""
    if name not in suite_names():
        raise BadInput(f"unknown suite {name!r}", "suite", "one of " + ", ".join(suite_names()))
    path = FOLDER / f"{name}.toml"
    return _load_file(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _load_file(path: Path, changed: int) -> Suite:
    """Read a suite, once for each time that its file ``changed``."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(str(error), path.name, "a TOML file") from None
    defaults = data.get("defaults", {})
    grid = data.get("grid", {"policies": [], "on": []})
    rows = [*data.get("run", []), *_grid(grid)]
    figures = [figure for row in [*rows, *data.get("cited", [])] for figure in _figures(row)]
    suite = Suite(
        path.stem,
        data.get("title", path.stem),
        data.get("about", ""),
        tuple(_run(defaults, row) for row in rows),
        data.get("value", ""),
        tuple(entry["title"] for entry in grid["on"]),
        tuple(title_of_column(policy) for policy in grid["policies"]),
        {figure["title"]: float(figure["published"]) for figure in figures},
        data.get("published", ""),
        _said("reservation", figures),
        data.get("within"),
        data.get("median"),
        data.get("share", 1.0),
        _said("assumed", figures),
        frozenset(figure["title"] for figure in figures if figure.get("fitted")),
        _said("value", rows),
        tuple(data.get("also", ())),
        {figure["title"]: figure["several"] for figure in figures if "several" in figure},
    )
    suite.specs()
    return suite


def _figures(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The row once for each figure that was published of it, with a title of its own."""
    told, title = row.get("published", {}), title_of(row)
    if not isinstance(told, Mapping):
        yield {**row, "title": title}
        return
    for metric, figure in told.items():
        named = f"{title}: {METRICS[metric].label}"
        yield {**row, "title": named, "published": figure, "several": (title, metric)}


def _said(what: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {title_of(row): str(row[what]) for row in rows if what in row}


def cell_title(row: str, column: str) -> str:
    return f"{row}, {column}"


def _grid(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for on in grid["on"]:
        for policy in grid["policies"]:
            own = {"policy": policy} if isinstance(policy, str) else policy
            yield {**on, **own, "title": cell_title(on["title"], title_of_column(policy))}


def title_of_column(policy: str | Mapping[str, Any]) -> str:
    """Return the name of a policy in a grid, or the title where it stands with knobs."""
    return policy if isinstance(policy, str) else str(policy["title"])


def is_users(source: str) -> bool:
    """Whether a source lies in the folder that the user names."""
    return source.startswith(DATA)


def _from(folder: Path, row: Any) -> Any:
    """What a run is made of, with the path of each of the user's files."""
    if isinstance(row, Mapping):
        return {name: _from(folder, value) for name, value in row.items()}
    return _file(folder, row) if isinstance(row, str) and is_users(row) else row


def _has_users_files(row: Any) -> bool:
    if isinstance(row, Mapping):
        return any(map(_has_users_files, row.values()))
    return isinstance(row, str) and is_users(row)


def _file(folder: Path, name: str) -> str:
    file = folder / name.removeprefix(DATA)
    if not file.exists():
        raise BadInput("is not there", str(file), "the folder that has the suite's workloads")
    return str(file)


def compare_with_published(suite: Suite, values: Mapping[str, float]) -> list[Against]:
    """Return every published figure of the suite next to what its run gave, in the suite's order."""
    return [
        Against(
            title,
            figure,
            values.get(title),
            suite.reservations.get(title, ""),
            suite.assumptions.get(title, ""),
            title in suite.fitted,
        )
        for title, figure in suite.published.items()
    ]


def agreement_of(suite: Suite, rows: Sequence[Against]) -> Agreement | None:
    """Return how well ``rows`` agree; ``None`` where the suite does not say what was asked for."""
    if suite.within is None or suite.median is None:
        return None
    return Agreement(tuple(rows), suite.within, suite.median, suite.share)


MEAN = "geometric mean"
#: A figure of a suite's table, the words in its place, or none.
Cell = float | str | None


def value_grid(
    suite: Suite, values: Mapping[str, float], unseen: Collection[str] = ()
) -> list[tuple[str, list[Cell]]]:
    """Return ``values`` by the titles of runs as rows of the suite's table.

    With their means where every cell of a column is known. The ``unseen`` are ratios whose interval holds 1:
    their cell is words, and they count as 1.
    """
    counted = {**values, **dict.fromkeys(unseen, EQUAL)}
    titles = [(row, [cell_title(row, column) for column in suite.columns]) for row in suite.rows]
    columns = zip(*([counted.get(title) for title in named] for _, named in titles), strict=True)
    rows: list[tuple[str, list[Cell]]] = [
        (row, [NO_DIFFERENCE if title in unseen else values.get(title) for title in named])
        for row, named in titles
    ]
    return [*rows, (MEAN, [_mean(column) for column in columns])]


def _mean(cells: Sequence[float | None]) -> float | None:
    known = [value for value in cells if value is not None]
    return geometric_mean(known) if len(known) == len(cells) else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """``None`` of nothing, and where a value is not positive."""
    if not values or min(values) <= 0:
        return None
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _run(defaults: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    merged = {**defaults, **row}
    title = title_of(merged)
    return title, {name: merged[name] for name in merged if name not in NOT_OF_THE_RUN}


def title_of(row: Mapping[str, Any]) -> str:
    return str(row.get("title", row.get("policy", "?")))
