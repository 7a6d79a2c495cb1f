"""One device that several models share, below an iteration: layers and kernels, copies, and who stops whom.

A sharing policy is asked whenever something ended or arrived, and answers with actions. The executor keeps
clock, shares and bytes, and refuses what no device could do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from experiments.core.policy import Policy
from experiments.workloads.scenario import REAL_TIME


class Operator(NamedTuple):
    """A layer or a kernel.

    ``seconds``  alone on the whole device.
    ``bytes``    of its weights.
    ``blocks``   of its launch.
    ``waves``    seconds of one wave on one compute unit with 1, 2, ... of its blocks there; empty: not known.
    ``part``     number of the model's own part that it belongs to; all 0: nobody tells parts.
    """

    seconds: float
    bytes: float = 0.0
    blocks: int = 1
    waves: tuple[float, ...] = ()
    part: int = 0

    def demand(self, units: int) -> int:
        """The fewest of ``units`` with as many waves as all; all where nobody tells its blocks."""
        if not self.waves:
            return units
        waves = -(-self.blocks // units)
        return -(-self.blocks // waves)


@dataclass(frozen=True)
class SharedModel:
    """A model on the shared device; ``operators`` in the order of a pass.

    ``peaks`` are the bytes that its passes work with besides the weights, one after another; the last is that
    of all after it. Empty: nobody tells them. ``preprocess`` s pass on the processor before a request reaches
    the device, ``postprocess`` s before it is answered; the processor has a core for each request. ``slo`` is
    the longest time to an answer (s).
    """

    name: str
    service_class: str
    operators: tuple[Operator, ...]
    peaks: tuple[float, ...] = ()
    preprocess: float = 0.0
    postprocess: float = 0.0
    slo: float = math.inf

    def bytes_in(self, passes: int) -> float:
        """Bytes that it takes in the pass after so many."""
        return self.bytes + (self.peaks[min(passes, len(self.peaks) - 1)] if self.peaks else 0.0)

    @property
    def most(self) -> float:
        """Bytes that it ever takes."""
        return self.bytes + max(self.peaks, default=0.0)

    @property
    def is_real_time(self) -> bool:
        return self.service_class == REAL_TIME

    @property
    def bytes(self) -> float:
        return sum(operator.bytes for operator in self.operators)

    @property
    def seconds(self) -> float:
        return sum(operator.seconds for operator in self.operators)


@dataclass(frozen=True)
class SharedDevice:
    """``units`` compute units, ``memory`` bytes for weights, and a copy channel.

    The channel carries ``bandwidth`` bytes/s after ``call_time`` s of each transfer.
    """

    units: int
    memory: float
    bandwidth: float
    call_time: float = 0.0


class Launch(NamedTuple):
    """Run the operators ``first`` to ``last`` (excluded) of a model on ``units`` for ``seconds``.

    With ``blocks`` only so many blocks of the one operator.
    """

    model: int
    first: int
    last: int
    units: int
    seconds: float
    blocks: int = 0


class Copy(NamedTuple):
    """Bring the weights of the model's operators before ``last`` that are not there yet, in ``seconds``."""

    model: int
    last: int
    seconds: float


class Kill(NamedTuple):
    """What the model runs ends now and is lost; it goes on at operator ``restart``."""

    model: int
    restart: int


class Evict(NamedTuple):
    """The model's weights leave the device (they are in host memory as well)."""

    model: int


class Hold(NamedTuple):
    """Ask again after ``seconds``; nothing is launched before (a reset, a process that starts)."""

    seconds: float


class Move(NamedTuple):
    """Copy ``bytes`` that the model works with to host memory, or back where they are below 0.

    In no ``seconds`` they are allocated there. What leaves is free when it has left, what comes back takes
    its place at once.
    """

    model: int
    bytes: float
    seconds: float


Action = Launch | Copy | Kill | Evict | Hold | Move


@dataclass
class SharingView:
    """The device at a decision, read only.

    ``waiting``   models of the real-time requests that are not answered, in order of arrival.
    ``position``  next operator of each model, ``offset`` its blocks that are done.
    ``resident``  leading operators of each model whose weights are on the device, ``copied``: there or on
                  their way.
    ``running``   what each model runs now.
    ``passes``    whole passes that each model has made.
    ``need``      bytes that each takes since its last pass began, ``on_host`` those of them in host memory;
                  ``moving`` counts the moves in flight.
    """

    position: list[int]
    offset: list[int]
    resident: list[int]
    copied: list[int]
    passes: list[int]
    free_units: int
    now: float = 0.0
    waiting: list[int] = field(default_factory=list)
    running: dict[int, Launch] = field(default_factory=dict)
    need: list[float] = field(default_factory=list)
    on_host: list[float] = field(default_factory=list)
    moving: int = 0


class HostCosts(NamedTuple):
    """What was measured of a host besides layers and copies, in s.

    ``clean``    after a stopped training iteration, until its memory is free.
    ``start``    of a process with framework and context, ``first_call`` of the libraries.
    ``pageable`` bandwidth of copies from memory that is not pinned, over that from pinned memory.
    """

    clean: float = 0.0
    start: float = 0.0
    first_call: float = 0.0
    pageable: float = 1.0


class Sharer(Protocol):
    """Asked at every event while the device is not held."""

    def act(self, view: SharingView) -> Sequence[Action]: ...


@dataclass(frozen=True)
class SharingPolicy(Policy):
    """A policy that says which layers or kernels of which model run on one device."""

    family: ClassVar[str] = "serving"
    mechanism: ClassVar[str] = "share a device"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("requests",)}

    #: Whether what does not fit the device may lie in host memory.
    spills: ClassVar[bool] = False
    #: What is asked for runs in a process of its own, which is started when it is asked.
    starts_processes: ClassVar[bool] = False

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        """A scenario tells its models; a model, whose summary says if it has a closed form, is measured."""
        if "models" in told or (cls.workloads.get("measured") and "closed_form" in told):
            return ""
        return "a scenario of several models (serving-scenario)"

    def begin(self, device: SharedDevice, models: Sequence[SharedModel]) -> Sharer:
        """Return what decides during one run: a fresh object, which may remember."""
        raise NotImplementedError(type(self).__name__)

    def on_host(self, costs: HostCosts) -> SharingPolicy:
        """Return the policy with a host's own costs in place of the knobs for them."""
        return self

    def starts_resident(self, model: SharedModel) -> bool:
        """Whether the model's weights are on the device before the first request."""
        return True
