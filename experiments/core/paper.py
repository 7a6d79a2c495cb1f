"""Papers and their claims as data, and the verdict: a claim is compared with runs, never judged by hand.

A policy's ``.toml`` holds one ``[paper]`` and any number of ``[[claim]]``::

    [[claim]]
    id = "vgg16-12gb"
    policy = "vdnn-dyn"                    # omitted: the file's first policy
    text = "VGG-16 with batch 256 trains on 12 GB at 18 % loss"
    where = "abstract"
    value = 0.18
    unit = "fraction"
    tolerance = 0.25                       # relative
    neutral = 0.0                          # the value that would mean "no effect" (for "direction only")
    figure = "1 - ideal.step_time / ours.step_time"
    [claim.runs.ours]                      # RunSpecs without seed and mode: filled with defaults
    ...
    [claim.forms.theirs]                   # closed forms of ``estimates``, in the figure as theirs.value
    form = "layer_activation_bytes"        # the rest are its arguments
    ...
    # or, instead of figure and runs or forms:
    not_run = "needs sparsity data of the authors' checkpoints"
"""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.core.errors import BadInput

VERDICTS = ("reproduced", "direction only", "not reproduced", "not run")


@dataclass(frozen=True)
class Paper:
    """The citation of a paper and what its system decides.

    ``key``      the BibTeX key.
    ``decides``  what the system decides, in up to three lines.
    """

    key: str
    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    decides: str
    url: str = ""

    def bibtex(self) -> str:
        fields = {
            "title": self.title,
            "author": " and ".join(self.authors),
            "booktitle": self.venue,
            "year": self.year,
        }
        lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        return f"@inproceedings{{{self.key},\n{lines}\n}}"


@dataclass(frozen=True)
class Claim:
    """One published figure and how ours is computed: ``figure`` is arithmetic over ``run.metric`` names.

    ``forms`` are closed forms with their arguments, named in the figure as ``form.value``.
    """

    id: str
    text: str
    where: str
    policy: str = ""
    value: float | None = None
    unit: str = ""
    tolerance: float = 0.1
    neutral: float | None = None
    figure: str = ""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_run: str = ""


@dataclass(frozen=True)
class PolicySheet:
    """What the ``.toml`` of a policy file holds; ``claims`` are those of one policy of the file."""

    paper: Paper | None
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing a claim with our figure.

    ``verdict`` is one of ``VERDICTS``; ``reason`` states the rule with its figures.
    """

    verdict: str
    reason: str
    ours: float | None = None

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict


def load_sheet(path: Path, policy: str) -> PolicySheet:
    """Read and check a policy's ``.toml``; ``BadInput`` names the file and the field."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadInput(str(error), path.name, "a readable TOML file") from None
    unknown = set(data) - {"paper", "claim"}
    if unknown:
        raise BadInput(f"unknown table {sorted(unknown)[0]!r}", path.name, "paper, claim")
    paper = _build(Paper, data["paper"], path.name) if "paper" in data else None
    claims = tuple(_claim(row, path.name) for row in data.get("claim", []))
    return PolicySheet(paper, tuple(c for c in claims if c.policy in ("", policy)))


def _build(cls: Any, row: Mapping[str, Any], where: str) -> Any:
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise BadInput(str(error).replace("__init__()", ""), where, "the fields of " + cls.__name__) from None


def _claim(row: Mapping[str, Any], where: str) -> Claim:
    claim: Claim = _build(Claim, row, where)
    place = f"{where}: claim {claim.id}"
    if claim.not_run:
        return claim
    known = {**claim.runs, **claim.forms}
    if claim.value is None or not claim.figure or not known:
        raise BadInput(
            "needs value, figure and runs, or not_run with the reason", place, "forms count as runs"
        )
    for run_name, _ in names_in(claim.figure, place):
        if run_name not in known:
            raise BadInput(f"figure names the run {run_name!r}", place, "one of " + ", ".join(known))
    return claim


_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def names_in(figure: str, where: str = "figure") -> list[tuple[str, str]]:
    """Return the ``(run, metric)`` pairs that a figure mentions.

    ``BadInput`` where it is no arithmetic.
    """
    try:
        tree = ast.parse(figure, mode="eval")
    except SyntaxError as error:
        raise BadInput(f"{figure!r}: {error.msg}", where, "arithmetic over run.metric") from None
    return [
        (n.value.id, n.attr)
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    ]


def evaluate(figure: str, metrics: Mapping[str, Mapping[str, float]]) -> float:
    """Return the value of a figure with the metrics of its runs.

    A figure is numbers, ``run.metric``, + - * / ** and parentheses. ``KeyError`` names a missing metric.
    """

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return metrics[node.value.id][node.attr]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        raise BadInput(f"{ast.unparse(node)!r} is not allowed", figure, "numbers, run.metric, + - * / **")

    return value(ast.parse(figure, mode="eval").body)


def judge(claim: Claim, ours: float) -> Verdict:
    """Return the verdict on a claim whose figure is ``ours`` here.

    Within the relative tolerance it is reproduced; else, on the claim's side of ``neutral``, its
    direction only.
    """
    assert claim.value is not None
    if not math.isfinite(ours):
        return Verdict("not reproduced", f"our figure is {ours}")
    error = abs(ours - claim.value) / abs(claim.value) if claim.value else abs(ours)
    if error <= claim.tolerance:
        return Verdict("reproduced", f"{error:.1%} from the claim, tolerance {claim.tolerance:.0%}", ours)
    if claim.neutral is not None and (ours - claim.neutral) * (claim.value - claim.neutral) > 0:
        return Verdict(
            "direction only", f"same side of {claim.neutral:g}, but {error:.1%} from the claim", ours
        )
    return Verdict("not reproduced", f"{error:.1%} from the claim, tolerance {claim.tolerance:.0%}", ours)
