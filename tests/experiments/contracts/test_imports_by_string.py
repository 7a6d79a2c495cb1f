"""Every import by string is listed with its reason, and none goes up the layers: import-linter sees none of
them.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.core.policy import FAMILIES
from tests.conftest import ROOT

PACKAGES = ("experiments", "webapp", "workers")
IMPORTERS = ("import_module", "load_module", "__import__", "import_string", "resolve_name")

TORCH = "torch is loaded only by a run that needs it"
OPTIONAL = "a package that not every host has"
BY_BEING_THERE = "found by being there, nothing is listed by hand"


@dataclass(frozen=True)
class Allowed:
    """``importer`` (or a module below it) imports ``target``; what stands in braces is only known when it
    runs.

    ``reaches``  the modules that a target with braces can be, or packages that they lie in.
    ``up``       why this one may go up the layers.
    """

    importer: str
    target: str
    reason: str
    reaches: tuple[str, ...] = ()
    up: str = ""


EXPERIMENTS = tuple(f"experiments.{family}.experiment" for family in FAMILIES)
POLICIES = tuple(f"experiments.{family}.policies" for family in FAMILIES)
REGISTRY = "experiments.core.registry"

ALLOWED = (
    Allowed(
        REGISTRY,
        "experiments.{family}.{part}",
        "the function by which all others do it: each of its calls is in this list",
        EXPERIMENTS,
        up="the caller is what counts",
    ),
    Allowed(REGISTRY, "experiments.{family}.policies", BY_BEING_THERE, POLICIES, up=BY_BEING_THERE),
    Allowed(REGISTRY, "{name}", BY_BEING_THERE, POLICIES, up=BY_BEING_THERE),
    Allowed(
        "experiments.run", "experiments.{spec.family}.experiment", "a run loads its own family", EXPERIMENTS
    ),
    Allowed(
        "experiments.__main__",
        "experiments.commands.{name}",
        "every trial begins with the command line: it loads the one command that it carries out",
        ("experiments.commands",),
    ),
    Allowed(
        "experiments.cluster.simulator.releases",
        "experiments.cluster.simulator.releases.{rules}",
        BY_BEING_THERE,
        ("experiments.cluster.simulator.releases",),
    ),
    Allowed(
        "experiments.readers.job_profiles",
        "experiments.readers.job_profiles.{module}",
        BY_BEING_THERE,
        ("experiments.readers.job_profiles",),
    ),
    Allowed("experiments.commands.communication", "experiments.parallel.experiment", TORCH),
    Allowed("experiments.commands.model", "experiments.profiling.cache", TORCH),
    Allowed("experiments.commands.model", "experiments.profiling.memory_law", TORCH),
    Allowed("experiments.commands.model", "experiments.profiling.timing", TORCH),
    Allowed("experiments.commands.model", "experiments.profiling.training_forms", TORCH),
    Allowed("experiments.commands.model", "experiments.serving.experiment.measured", TORCH),
    Allowed("experiments.commands.model", "experiments.serving.live", TORCH),
    Allowed("experiments.serving.experiment.live_engines", "experiments.serving.live", TORCH),
    Allowed("experiments.serving.experiment.measured", "experiments.serving.live", TORCH),
    Allowed("experiments.serving.experiment.switching", "experiments.serving.live", TORCH),
    Allowed("experiments.serving.experiment.switching", "experiments.serving.live.switching", TORCH),
    Allowed("experiments.validate.serving", "experiments.serving.live", TORCH),
    Allowed("experiments.validate.compilation", "experiments.compilation.live.rates", TORCH),
    Allowed("experiments.validate.memory", "experiments.memory.live", TORCH),
    Allowed("experiments.validate.numerics", "experiments.compilation.live.matmul_rate", TORCH),
    Allowed("experiments.memory.experiment", "experiments.memory.live", TORCH),
    Allowed("experiments.parallel.experiment", "experiments.parallel.live", TORCH),
    Allowed("experiments.parallel.experiment", "experiments.parallel.live.fake", TORCH),
    Allowed("experiments.compilation.experiment", "experiments.compilation.live", TORCH),
    Allowed("experiments.compilation.experiment", "experiments.compilation.live.tuning", TORCH),
    Allowed("experiments.sources", "experiments.profiling.cache", TORCH),
    Allowed("experiments.readers.base", "experiments.readers", BY_BEING_THERE),
    Allowed(
        "experiments.readers.base",
        "experiments.readers.{info.name}",
        BY_BEING_THERE,
        ("experiments.readers",),
    ),
    Allowed(
        "experiments.models.build",
        "experiments.models.{module_name}",
        "the catalog names a model's builder, and is read without torch",
        ("experiments.models",),
    ),
    Allowed(
        "experiments.compilation.live.backends",
        "{__name__}.{BACKENDS[backend]}",
        "a backend's library is loaded when a recipe names it",
        ("experiments.compilation.live.backends",),
    ),
    Allowed("experiments.compilation.live.backends.onnxruntime", "onnxruntime", OPTIONAL),
    Allowed(
        "experiments.compilation.live.backends.onnxruntime",
        "onnxruntime.capi.onnxruntime_pybind11_state",
        OPTIONAL,
    ),
    Allowed("experiments.compilation.live.backends.onnxruntime", "onnx", OPTIONAL),
    Allowed("experiments.compilation.live.backends.torchao", "torchao.quantization", OPTIONAL),
    Allowed("experiments.compilation.live.backends.torchao", "{chosen.module}", OPTIONAL, ("torchao",)),
    Allowed("experiments.compilation.planning.tuning.trees", "lightgbm", OPTIONAL),
    Allowed("experiments.cluster.policies.qssf.history", "lightgbm", OPTIONAL),
    Allowed("experiments.cluster.policies.liquid.forest", "lightgbm", OPTIONAL),
)


def imports_in(text: str) -> Iterator[str]:
    """Targets of the imports by string in a module's ``text``, what is computed in braces."""
    tree = ast.parse(text)
    names = {name: name for name in IMPORTERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {
                alias.asname: alias.name for alias in node.names if alias.asname and alias.name in IMPORTERS
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := names.get(_last_name(node.func))):
            parts = [_template(argument) for argument in node.args]
            yield ".".join(["experiments", *parts]) if name == "load_module" else parts[0]


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _template(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    if isinstance(argument, ast.JoinedStr):
        return "".join(map(_template, argument.values))
    if isinstance(argument, ast.FormattedValue):
        argument = argument.value
    return "{" + ast.unparse(argument) + "}"


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def found() -> list[tuple[str, str]]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    texts = [(module_of(file), file.read_text()) for file in files]
    some = [(module, text) for module, text in texts if any(name in text for name in IMPORTERS)]
    return [(module, target) for module, text in some for target in imports_in(text)]


def lies_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layers(name: str) -> list[list[str]]:
    """The layers of an import contract, top first; those of one row may not import each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (own,) = (contract for contract in contracts if contract["name"].startswith(name))
    return [re.findall(r"[\w.]+", row) for row in own["layers"]]


TREE, FAMILY = layers("Families build on one another"), layers("Inside a family")


def goes_up(importer: str, target: str) -> bool:
    """Whether the layers of the tree, or those inside the family that both lie in, forbid the import."""
    if not lies_in(target, "experiments"):
        return False
    both = [_place(module, TREE, "") for module in (importer, target)]
    if both[0] == both[1] and both[0].package.split(".")[-1] in FAMILIES:
        both = [_place(module, FAMILY, f"{both[0].package}.") for module in (importer, target)]
    above, below = both
    return below.row < above.row or (below.row == above.row and below.package != above.package)


@dataclass(frozen=True)
class Place:
    row: int
    package: str


def _place(module: str, rows: list[list[str]], prefix: str) -> Place:
    return next(
        Place(number, prefix + name)
        for number, row in enumerate(rows)
        for name in row
        if lies_in(module, prefix + name)
    )


def test_every_import_by_string_is_listed() -> None:
    known = [(entry.importer, entry.target) for entry in ALLOWED]
    unlisted = [
        (module, target)
        for module, target in found()
        if not any(lies_in(module, importer) and target == own for importer, own in known)
    ]
    assert unlisted == [], "list it with its reason, or pass in what is needed from the layer above"


@pytest.mark.parametrize("entry", ALLOWED, ids=lambda entry: f"{entry.importer} -> {entry.target}")
def test_what_is_listed_is_there_and_goes_down(entry: Allowed) -> None:
    assert any(lies_in(module, entry.importer) and target == entry.target for module, target in found())
    assert len(entry.reason) > 10
    assert bool(entry.reaches) == ("{" in entry.target)
    upward = [target for target in entry.reaches or (entry.target,) if goes_up(entry.importer, target)]
    assert bool(upward) == bool(entry.up), upward


def test_only_the_registry_goes_up() -> None:
    assert {entry.importer for entry in ALLOWED if entry.up} == {REGISTRY}


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('experiments.run')",
        "from importlib import import_module as load\nload('experiments.run')",
        "def late():\n    return __import__('experiments.run')",
        "from experiments.core import registry\nregistry.load_module('run')",
    ],
)
def test_an_import_by_string_is_seen_however_it_is_written(text: str) -> None:
    assert list(imports_in(text)) == ["experiments.run"]


def test_what_is_computed_stands_in_braces() -> None:
    assert list(imports_in("load_module(spec.family, f'live.{part}')")) == [
        "experiments.{spec.family}.live.{part}"
    ]


@pytest.mark.parametrize(
    ("importer", "target", "up"),
    [
        ("experiments.core.claims", "experiments.estimates", True),
        ("experiments.compilation.simulator.tiles", "experiments.compilation.live", True),
        ("experiments.compilation.planning.tuning", "experiments.compilation.live.tuning", True),
        ("experiments.memory.experiment", "experiments.compilation.interface", True),
        ("experiments.compilation.experiment.tuning", "experiments.compilation.live.tuning", False),
        ("experiments.parallel.live.rank", "experiments.memory.simulator", False),
        ("experiments.core.claims", "lightgbm", False),
    ],
)
def test_what_goes_up_is_told_from_the_import_contracts(importer: str, target: str, up: bool) -> None:
    assert goes_up(importer, target) == up


def asked_of(text: str) -> Iterator[tuple[str, str]]:
    """Each name that a function of ``text`` asks of a module which it imported by string into a variable."""
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
        modules = {
            node.targets[0].id: target
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            for target in imports_in(ast.unparse(node.value))
        }
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            ):
                yield modules[node.value.id], node.attr


def has(module: str, name: str) -> bool:
    """Whether our own ``module`` names ``name`` at its top; of other packages nothing is known."""
    file = file_of(module)
    defined = rf'^(?:def |class )?{name}\b|"{name}"'
    return not file.exists() or name == "__path__" or bool(re.search(defined, file.read_text(), re.MULTILINE))


def test_what_is_asked_of_a_module_imported_by_string_is_there() -> None:
    """No type checker follows such a name, so a renamed function would be missed."""
    asked = [
        pair
        for module, target in found()
        if target.startswith("experiments.")
        for pair in asked_of(file_of(module).read_text())
    ]
    assert len(asked) > 10
    assert [(module, name) for module, name in asked if not has(module, name)] == []


def file_of(module: str) -> Path:
    path = ROOT / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
