"""Papers and their claims as data; ``core.verdicts`` compares a claim with its runs.

A policy's ``.toml`` holds one ``[paper]`` and any number of ``[[claim]]``::

    [[claim]]
    id = "vgg16-12gb"
    policy = "vdnn-dyn"                    # omitted: the file's first policy
    text = "VGG-16 with batch 256 trains on 12 GB at 18 % loss"
    where = "abstract"
    value = 0.18
    unit = "fraction"
    tolerance = 0.1                        # relative; more only with a reason: wider = "..."
    neutral = 0.0                          # the value that would mean "no effect"
    figure = "1 - ideal.step_time / ours.step_time"
    [claim.runs.ours]                      # RunSpecs without seed and mode: filled with defaults
    ...
    [claim.forms.theirs]                   # closed forms of ``estimates``, in the figure as theirs.value
    form = "layer_activation_bytes"        # the rest are its arguments
    ...

What else a claim says of itself, and the verdict that follows (``docs/verdicts.md``)::

    bound = "at least"                     # or "at most": the source gives no figure but a limit
    no_effect = true                       # the source says that nothing, or next to nothing, changes
    proxy = "ResNet-152 for ResNet-101"    # what stands in for the paper's workload ...
    free = ["batch"]                       # ... and what is halved and doubled with it (``FREE``)
    fitted = true                          # constants were fitted on this row
    identity = "states over 8 devices"     # why it follows from the definition
    cannot = "needs the authors' weights"  # instead of figure and runs: cannot be carried out here
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.figures import names_in

#: What is published exactly is met within this; more needs a reason.
WIDEST = 0.1
#: What a figure on the edge of its band may lose to rounding.
ROUNDING = 1e-9
BOUNDS = ("", "at least", "at most")
#: What can be halved and doubled in a stand-in: options of workloads, and the memory of devices.
MEMORY = "memory"
FREE = ("batch", "sequence", "image", MEMORY)


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
        """The entry; the title in braces of its own, so that no style makes its capitals small."""
        fields = {
            "title": f"{{{_tex(self.title)}}}",
            "author": _tex(" and ".join(self.authors)),
            "booktitle": _tex(self.venue),
            "year": self.year,
        }
        lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        return f"@inproceedings{{{self.key},\n{lines}\n}}"


def _tex(text: str) -> str:
    """What TeX would read as its own stands for itself."""
    return text.translate(_SPECIAL)


_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"})


@dataclass(frozen=True)
class Claim:
    """One published figure and how ours is computed: ``figure`` is arithmetic over ``run.metric`` names.

    - ``forms``: closed forms with their arguments, named in the figure as ``form.value``.
    - ``wider``: why the tolerance is more than 10 %.
    - ``neutral``: the value that would mean "no effect".
    - ``proxy``, ``free``: what stands in for the paper's workload, and its free parameters.
    - ``cannot``: why it cannot be carried out here.
    """

    id: str
    text: str
    where: str
    policy: str = ""
    value: float | None = None
    unit: str = ""
    tolerance: float = WIDEST
    wider: str = ""
    bound: str = ""
    neutral: float | None = None
    no_effect: bool = False
    figure: str = ""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    proxy: str = ""
    free: tuple[str, ...] = ()
    fitted: bool = False
    identity: str = ""
    cannot: str = ""

    @property
    def band(self) -> tuple[float, float]:
        """Return the least and the most that meet the claim."""
        assert self.value is not None
        slack = (self.tolerance + ROUNDING) * (abs(self.value) or 1.0)
        low = -math.inf if self.bound == "at most" else self.value - slack
        high = math.inf if self.bound == "at least" else self.value + slack
        return low, high

    @property
    def asks_only_whether_it_fits(self) -> bool:
        return bool(self.figure) and all(metric == "feasible" for _, metric in names_in(self.figure))

    @property
    def is_identity(self) -> bool:
        """Whether it follows from the definition: as the sheet says, or by closed forms alone."""
        return bool(self.identity) or (bool(self.forms) and not self.runs)

    @property
    def digest(self) -> str:
        """Return the SHA-256 of all that its verdict depends on: not of its text."""
        said = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _PROSE}
        return jsonio.digest(said)


#: What of a claim is only read.
_PROSE = ("text", "where", "wider", "unit")


@dataclass(frozen=True)
class PolicySheet:
    """What the ``.toml`` of a policy file holds; ``claims`` are those of one policy of the file."""

    paper: Paper | None
    claims: tuple[Claim, ...]


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
    _check_words(claim, place)
    if claim.cannot:
        return claim
    known = {**claim.runs, **claim.forms}
    if claim.value is None or not claim.figure or not known:
        raise BadInput(
            "needs value, figure and runs, or cannot with the reason", place, "forms count as runs"
        )
    for run_name, _ in names_in(claim.figure, place):
        if run_name not in known:
            raise BadInput(f"figure names the run {run_name!r}", place, "one of " + ", ".join(known))
    return claim


def _check_words(claim: Claim, place: str) -> None:
    if claim.bound not in BOUNDS:
        raise BadInput(f"unknown bound {claim.bound!r}", place, "at least, at most, or none")
    for name in claim.free:
        if name not in FREE:
            raise BadInput(f"unknown free parameter {name!r}", place, "of " + ", ".join(FREE))
