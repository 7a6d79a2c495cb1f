"""Finds the policies: every system in ``experiments/<family>/policies/`` is looked at, nothing is listed by
hand.

A system is a file, ``<system>.py`` next to ``<system>.toml``, or a folder of its own,
``<system>/__init__.py`` with ``<system>/<system>.toml`` and the algorithm next to them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from experiments.core import knobs
from experiments.core.errors import BadInput, LabError
from experiments.core.paper import PolicySheet, load_sheet
from experiments.core.policy import FAMILIES, Policy

#: What importing a module that somebody else wrote can end in.
UNUSABLE = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LabError, LookupError, NameError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


class DuplicatePolicy(RuntimeError):
    """Two policies of a family carry the same name."""


@dataclass(frozen=True)
class BrokenModule:
    """A system whose policies cannot be used.

    ``name``  its file or folder in ``policies``.
    ``file``  path of its module in the repository.
    ``why``   the error, and the line where there is one.
    """

    family: str
    name: str
    file: str
    why: str


def load_module(family: str, part: str) -> ModuleType:
    """Return the module ``experiments.<family>.<part>``.

    For parts that must not be imported before they are needed.

    What is imported by string no import contract sees: each call stands in ``test_imports_by_string`` with
    its reason, and goes down the layers. What a lower layer needs of a higher one is passed in as an
    argument.
    """
    return importlib.import_module(f"experiments.{family}.{part}")


@functools.cache
def _modules(family: str) -> tuple[tuple[ModuleType, ...], tuple[BrokenModule, ...]]:
    """The family's modules, and those that one bad policy keeps from being used: the others must go on
    working.
    """
    package = load_module(family, "policies")
    found: list[ModuleType] = []
    broken: list[BrokenModule] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        try:
            found.append(_usable(f"{package.__name__}.{info.name}"))
        except UNUSABLE as error:
            broken.append(BrokenModule(family, info.name, _file(family, info), _explain(error, info.name)))
    return tuple(found), tuple(broken)


def _file(family: str, info: pkgutil.ModuleInfo) -> str:
    return f"experiments/{family}/policies/{info.name}" + ("/__init__.py" if info.ispkg else ".py")


def _usable(name: str) -> ModuleType:
    """The module, imported, with knobs and a sheet that can be read; raises one of ``UNUSABLE`` otherwise."""
    module = importlib.import_module(name)
    for policy in policies_in(module):
        knobs.describe(policy)
        sheet(policy)
    return module


def _explain(error: BaseException, system: str) -> str:
    """Return ``NameError: name 'knbo' is not defined (line 12)``, the line where the system's own
    code was.
    """
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if _belongs(Path(frame.filename), system)]
    return f"{type(error).__name__}: {error}" + (f" (line {lines[0]})" if lines else "")


def _belongs(file: Path, system: str) -> bool:
    return system == (file.parent.name if file.name == "__init__.py" else file.stem)


def broken_modules(family: str | None = None) -> list[BrokenModule]:
    """Modules of ``family``, or of all, whose policies cannot be used."""
    chosen = FAMILIES if family is None else (family,)
    return [module for name in chosen for module in _modules(name)[1]]


def refuse_broken(family: str | None, name: str) -> None:
    """Raise ``BadInput`` with the reason where the policy's module cannot be used.

    That is the module in which the policy called ``name`` would be.
    """
    for module in broken_modules(family):
        if name.replace("-", "_").startswith(module.name):
            raise BadInput(f"{module.file} cannot be used: {module.why}", "policy", "a module that imports")


def policies_in(module: ModuleType) -> list[type[Policy]]:
    """The policies that ``module`` itself defines (not those it imports), in the order written."""
    members = [value for value in vars(module).values() if inspect.isclass(value)]
    own = [value for value in members if issubclass(value, Policy) and value.__module__ == module.__name__]
    return [value for value in own if "name" in vars(value)]


def collect(modules: Iterable[ModuleType]) -> dict[str, type[Policy]]:
    """Policies by name. A name taken twice raises ``DuplicatePolicy`` naming both places."""
    found: dict[str, type[Policy]] = {}
    for module in modules:
        for policy in policies_in(module):
            taken = next(
                (name for name in found if name.replace("-", "_") == policy.name.replace("-", "_")), None
            )
            if taken:
                places = f"{found[taken].__module__} and {policy.__module__}"
                raise DuplicatePolicy(f"policy name {policy.name!r} is used in {places}")
            found[policy.name] = policy
    return found


@functools.cache
def family_policies(family: str) -> Mapping[str, type[Policy]]:
    """All policies of one family by name."""
    if family not in FAMILIES:
        raise BadInput(f"unknown family {family!r}", "family", "one of " + ", ".join(FAMILIES))
    return MappingProxyType(collect(_modules(family)[0]))


def all_policies() -> list[type[Policy]]:
    return [policy for family in FAMILIES for policy in family_policies(family).values()]


def policy_class(family: str, name: str) -> type[Policy]:
    """The policy called ``name``; ``-`` and ``_`` are one, because papers and Python disagree about them."""
    own = _in_its_file(family, name.replace("-", "_")) if family in FAMILIES else None
    if own is not None:
        return own
    found = family_policies(family)
    for known, policy in found.items():
        if known.replace("-", "_") == name.replace("-", "_"):
            return policy
    refuse_broken(family, name)
    raise BadInput(f"unknown policy {name!r}", "policy", f"one of {', '.join(sorted(found))}")


@functools.cache
def _in_its_file(family: str, name: str) -> type[Policy] | None:
    """The policy from the file that is named like it, as every policy's is: a run need not import all the
    others.
    """
    package = load_module(family, "policies")
    files = [info.name for info in pkgutil.iter_modules(package.__path__) if name.startswith(info.name)]
    for file in sorted(files, key=len, reverse=True):
        try:
            module = _usable(f"{package.__name__}.{file}")
        except UNUSABLE:
            continue  # told by whoever asks for all modules
        for policy in policies_in(module):
            if policy.name.replace("-", "_") == name:
                return policy
    return None


def create(family: str, name: str, values: Mapping[str, Any]) -> Policy:
    """The policy with its knobs set and checked."""
    found = policy_class(family, name)
    for knob, advice in found.retired.items():
        if knob in values:
            what = f"{name} no longer has this knob (here {values[knob]!r})"
            raise BadInput(what, f"knobs.{knob}", advice)
    policy: Policy = knobs.load(found, values, "knobs")
    return policy


def sheet(policy: type[Policy]) -> PolicySheet:
    """Return paper and claims: ``<system>.toml`` next to the policy's module, or in the system's folder.

    It is read once, with the module, and stays as its module does: neither changes under a running process.
    """
    source = inspect.getsourcefile(policy)
    assert source is not None
    return _sheet(Path(source), policy.name)


@functools.cache
def _sheet(module: Path, policy: str) -> PolicySheet:
    in_folder = module.name == "__init__.py"
    file = module.with_name(f"{module.parent.name}.toml") if in_folder else module.with_suffix(".toml")
    return load_sheet(file, policy)


def describe(policy: type[Policy]) -> dict[str, Any]:
    """Return a policy as JSON: what forms, the catalog, the API and outside checks read."""
    paper = sheet(policy).paper
    return {
        "name": policy.name,
        "family": policy.family,
        "modes": list(policy.modes),
        "summary": policy.summary(),
        "knobs": [knob.to_json() for knob in knobs.describe(policy)],
        "paper": paper.key if paper else None,
    }
