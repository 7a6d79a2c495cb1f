"""Records of kernel tuning: tasks over spaces of schedules, proposals to try, and trials measured.

A space is a mixed radix number: each knob is a digit, its values are what the digit can stand for, the first
knob is the least significant. A trial that failed has no time: it carries the class of its error instead.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from experiments.compilation.interface.policy import CompilationPolicy
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.workloads.tuning_log import TUNING_ERRORS, Value

Floats = npt.NDArray[np.float64]
Digits = npt.NDArray[np.int64]
#: Rounds that an operator has on average at least: its first teaches the model, the others are led by it.
LEAST_ROUNDS = 4
#: Above this many points a space is never written out.
MOST_LISTED = 200_000


@dataclass(frozen=True)
class ScheduleKnob:
    """One decision of a schedule and the values it can take; ``kind`` names the mutation that changes it."""

    name: str
    values: tuple[Value, ...]
    kind: str = "other"

    @functools.cached_property
    def digit(self) -> Mapping[Value, int]:
        return {value: digit for digit, value in enumerate(self.values)}


@dataclass(frozen=True)
class ScheduleSpace:
    """All combinations of the knobs' values, or of those only the points ``listed`` (a recorded table)."""

    knobs: tuple[ScheduleKnob, ...]
    listed: tuple[int, ...] | None = None

    @functools.cached_property
    def combinations(self) -> int:
        return math.prod(len(knob.values) for knob in self.knobs)

    @property
    def size(self) -> int:
        return self.combinations if self.listed is None else len(self.listed)

    @functools.cached_property
    def radices(self) -> Digits:
        return np.array([len(knob.values) for knob in self.knobs], dtype=np.int64)

    @functools.cached_property
    def _weights(self) -> npt.NDArray[np.object_]:
        """What a digit counts for, as Python integers where 63 bits do not hold them."""
        weights = [math.prod(len(knob.values) for knob in self.knobs[:i]) for i in range(len(self.knobs))]
        return np.array(weights, dtype=np.int64 if self.combinations < 2**63 else object)

    def indices(self, digits: Digits) -> list[int]:
        """Return the points of rows of digits."""
        found: list[int] = (digits.astype(self._weights.dtype) @ self._weights).tolist()
        return found

    def digits(self, indices: Sequence[int]) -> Digits:
        """Return rows of digits, one for each point."""
        dtype = self._weights.dtype
        points = np.array(indices, dtype=dtype)[:, None]
        return np.asarray(points // self._weights[None] % self.radices.astype(dtype)[None], dtype=np.int64)

    def config(self, index: int) -> dict[str, Value]:
        """Return what the point stands for, knob by knob."""
        digits = self.digits([index])[0].tolist()
        return {knob.name: knob.values[digit] for knob, digit in zip(self.knobs, digits, strict=True)}

    def index(self, config: Mapping[str, Value]) -> int:
        """Return the point of a configuration that names every knob."""
        return self.indices(np.array([[knob.digit[config[knob.name]] for knob in self.knobs]]))[0]

    def random_digits(self, count: int, rng: np.random.Generator) -> Digits:
        """Uniform rows of digits, repeats possible."""
        if self.listed is not None:
            return self.digits([self.listed[i] for i in rng.integers(len(self.listed), size=count)])
        return rng.integers(self.radices, size=(count, len(self.knobs)))

    def points(self) -> Sequence[int]:
        """Return every point, for spaces small enough to be looked through."""
        return self.listed if self.listed is not None else range(self.combinations)

    @functools.cached_property
    def _members(self) -> frozenset[int]:
        return frozenset(self.listed or ())

    def __contains__(self, index: int) -> bool:
        return 0 <= index < self.combinations and (self.listed is None or index in self._members)

    @property
    def is_small(self) -> bool:
        return self.size <= MOST_LISTED

    def fresh(self, count: int, taken: Collection[int], rng: np.random.Generator) -> list[int]:
        """Return up to ``count`` different points at random that are not ``taken``.

        Fewer only where no more are left.
        """
        if self.is_small and self.size - len(taken) < 4 * count + self.size // 2:
            left = [point for point in self.points() if point not in taken]
            return [left[i] for i in rng.permutation(len(left))[:count].tolist()]
        found: dict[int, None] = {}
        while len(found) < min(count, self.size - len(taken)):
            drawn = self.indices(self.random_digits(count, rng))
            found.update((point, None) for point in drawn if point not in taken)
        return list(found)[:count]


@dataclass(frozen=True)
class BufferAccess:
    """A buffer as a loop nest reads or writes it.

    - ``sizes``, ``forms``: sizes, and for each dimension the coefficients of the axes.
    - ``padding``, ``inside``: where given, the buffer is made of one of sizes ``inside`` with zeros around
      it, ``padding`` entries of them before each dimension.
    """

    buffer: str
    sizes: tuple[int, ...]
    forms: tuple[Mapping[str, int], ...]
    inside: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one entry of a dimension to the next, rows last."""
        return tuple(math.prod(self.sizes[dim + 1 :]) for dim in range(len(self.sizes)))

    def coefficient(self, axis: str) -> int:
        """Return elements that one step along ``axis`` moves."""
        steps = zip(self.forms, self.strides, strict=True)
        return sum(form.get(axis, 0) * stride for form, stride in steps)


@dataclass(frozen=True)
class Contraction:
    """A sum of products over affine accesses: a matrix product or a convolution to be scheduled.

    - ``spatial``, ``reduce``: the axes with their extents, the last spatial axis being the one to vectorize.
    - ``output``: the buffer written.
    - ``inputs``: the two buffers read and multiplied.
    """

    operator: str
    spatial: tuple[tuple[str, int], ...]
    reduce: tuple[tuple[str, int], ...]
    output: BufferAccess
    inputs: tuple[BufferAccess, ...]

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        return (*self.spatial, *self.reduce)

    @property
    def flops(self) -> float:
        """A product and a sum for every point of the loop nest."""
        return 2.0 * math.prod(extent for _, extent in self.axes)


@dataclass(frozen=True)
class TuningTask:
    """One operator on one shape.

    - ``weight``: how often a model calls it.
    - ``flops``: of one call, where known.
    - ``nest``: the loop nest that is scheduled; a recorded task has none, only its table of knobs.
    """

    name: str
    operator: str
    space: ScheduleSpace
    weight: float = 1.0
    flops: float | None = None
    nest: Contraction | None = None


@dataclass(frozen=True)
class TuningProposal:
    """A schedule to try: the point ``index`` of the space of the task at position ``task``."""

    task: int
    index: int


@dataclass(frozen=True)
class TuningTrial:
    """Outcome of measuring a proposal: seconds of each repeat, or the class of the error; never both."""

    proposal: TuningProposal
    repeats: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    spent: float = 0.0

    def __post_init__(self) -> None:
        assert bool(self.repeats) != bool(self.error), "a trial has times or an error"
        assert self.error in TUNING_ERRORS

    @property
    def seconds(self) -> float | None:
        """Median of the repeats, as a host has other things to do too; ``None`` of a failed trial."""
        return statistics.median(self.repeats) if self.repeats else None


class ScheduleTuner(Protocol):
    """A search for schedules in progress."""

    def propose(self, count: int) -> list[TuningProposal]:
        """Return up to ``count`` schedules never proposed before; none when there is nothing left to try."""

    def learn(self, trials: Sequence[TuningTrial]) -> None:
        """Take in the trials of the last proposals, in the order proposed (fewer where time ran out)."""


@dataclass(frozen=True)
class TuningPolicy(CompilationPolicy):
    """Asked which schedules to try next, and told what they took."""

    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "simulated": ("tuning",),
        "measured": ("model", "operators"),
    }
    #: Whether the schedules come from sketches derived by rule; else from a template written by hand.
    from_sketches: ClassVar[bool] = False

    trials: int = knob(256, "trials in all", low=1, high=100_000)
    seconds: float = knob(600.0, "no trial starts later than this", low=1.0, high=1e6, unit="s")
    tasks: int = knob(4, "operators of a model that are tuned, the heaviest first", low=1, high=256)
    repeats: int = knob(5, "replays with other seeds, for medians", low=1, high=100)
    language: str = knob(
        "auto",
        "what schedules are written in; auto: Triton on a GPU, else C++",
        choices=("auto", "c++", "triton"),
    )
    threads: int = knob(
        0,
        "cores for a schedule and for torch's operator, 0 for all; with one, processor time is taken, "
        "which other work on the host does not lengthen",
        low=0,
        high=1024,
    )
    compiled: bool = knob(False, "time torch.compile's operator too (some seconds for each task)")

    def round_of(self, wanted: int, tasks: Sequence[TuningTask]) -> int:
        """Return how many trials pass between two looks at the model.

        As many as ``wanted``, fewer where the budget has few for each task.
        """
        return max(1, min(wanted, self.trials // (LEAST_ROUNDS * max(len(tasks), 1))))

    def tuner(self, tasks: Sequence[TuningTask], seed: int) -> ScheduleTuner:
        """Return a search over ``tasks``, nothing tried yet."""
        raise NotImplementedError


def require_trials(tasks: Sequence[TuningTask], trials: int) -> Sequence[TuningTask]:
    """Return ``tasks`` if there is something to tune and a trial for each; raise ``BadInput`` else."""
    if not tasks:
        raise BadInput("has no operator that can be tuned", "workload", "a matrix product or a convolution")
    if trials < len(tasks):
        raise BadInput(f"is {trials}", "knobs.trials", f"at least one for each of {len(tasks)} operators")
    return tasks


def violations(
    proposals: Sequence[TuningProposal],
    tasks: Sequence[TuningTask],
    count: int,
    tried: Collection[TuningProposal],
) -> list[str]:
    """Return the reasons why proposals are none, one line each.

    There are at most ``count``, none of them ``tried`` before.
    """
    found = [f"{len(proposals)} schedules are proposed where {count} are left"] * (len(proposals) > count)
    seen = set[TuningProposal]()
    for proposal in proposals:
        if not 0 <= proposal.task < len(tasks):
            found.append(f"task {proposal.task} is proposed, of {len(tasks)}")
        elif proposal.index not in tasks[proposal.task].space:
            found.append(f"{tasks[proposal.task].name} has no schedule {proposal.index}")
        elif proposal in tried or proposal in seen:
            found.append(f"schedule {proposal.index} of {tasks[proposal.task].name} is proposed again")
        seen.add(proposal)
    return found
