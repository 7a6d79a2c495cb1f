"""A class is an interface, the shape of some policies, or a policy; what more it needs it has as a part."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.experiments.contracts.statements import statements

PRODUCT = ("experiments", "webapp", "workers", "labtools")
#: The base of all families, which a chain of policies may stand on.
FOUNDATION = ("experiments.core.policy", "Policy")
#: Interface, shape, policy.
DEEPEST = 3

Name = tuple[str, str]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def trees() -> dict[str, list[ast.AST]]:
    """The statements of every module."""
    files = (file for top in PRODUCT for file in (ROOT / top).rglob("*.py"))
    return {module_of(file): statements(ast.parse(file.read_text())) for file in files}


@functools.cache
def imports(module: str) -> dict[str, Name]:
    """Where each name that the module imports comes from."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in trees()[module]
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@functools.cache
def classes(module: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in trees()[module] if isinstance(node, ast.ClassDef)}


def definition(module: str, name: str) -> Name | None:
    """The module and name of the product's class that ``name`` stands for in ``module``."""
    if module not in trees():
        return None
    if name in classes(module):
        return module, name
    outer, _, inner = name.partition(".")
    if outer not in imports(module):
        return None
    source, imported = imports(module)[outer]
    return definition(f"{source}.{imported}", inner) if inner else definition(source, imported)


@functools.cache
def chain(module: str, name: str) -> tuple[Name, ...]:
    """The longest line of the product's classes from this one up, ``core.Policy`` not counted."""
    written = [ast.unparse(base).partition("[")[0] for base in classes(module)[name].bases]
    bases = {base for base in (definition(module, one) for one in written) if base}
    lines = [chain(*base) for base in sorted(bases - {FOUNDATION, (module, name)})]
    return ((module, name), *max(lines, key=len, default=()))


def test_no_class_chain_is_deeper_than_interface_shape_and_policy() -> None:
    found = [chain(module, name) for module in trees() for name in classes(module)]
    deep = [" < ".join(name for _, name in line) for line in found if len(line) > DEEPEST]
    assert not deep


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (
            "experiments.serving.policies.static_batching",
            "StaticBatching",
            ["StaticBatching", "RequestLevelBatching", "ServingPolicy"],
        ),
        ("experiments.compilation.policies.eager", "Eager", ["Eager", "RecipePolicy", "CompilationPolicy"]),
    ],
)
def test_a_chain_goes_through_packages_that_hand_a_class_on(
    module: str, name: str, expected: list[str]
) -> None:
    assert [each for _, each in chain(module, name)] == expected
