"""What a dispatcher may do when something happens, and what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.serving.interface.deployment.placement import Deployment, Group


class Run(NamedTuple):
    """One pass of ``model`` over ``requests`` on a group, behind what the group was given before."""

    group: int
    model: int
    requests: tuple[int, ...]


class Load(NamedTuple):
    """Copy the weights of ``model`` from host memory to the group, behind other copies to it."""

    group: int
    model: int


class Unload(NamedTuple):
    """Give up the group's weights of ``model``, once no pass that was begun needs them."""

    group: int
    model: int


class Reject(NamedTuple):
    """``request`` is never answered, for the ``reason``."""

    request: int
    reason: str


class Wake(NamedTuple):
    """Ask again at ``time`` (s)."""

    time: float


class Regroup(NamedTuple):
    """Other groups from now on; passes that were given to the old ones end on their devices first.

    Weights that a group did not have are copied to it, unless the exchange ``is_free``.
    """

    groups: tuple[Group, ...]
    is_free: bool


Action = Run | Load | Unload | Reject | Wake | Regroup


@dataclass
class GroupView:
    """A group as it stands.

    ``free``          when each stage has done what it was given (s).
    ``resident``      models whose weights are there, each with the moment from which they can be used.
    ``used``          bytes of weights on each stage's devices, with those that are being copied.
    ``channel_free``  when the copies to it that were asked for are done (s).
    """

    group: Group
    free: list[float]
    resident: dict[int, float] = field(default_factory=dict)
    used: list[float] = field(default_factory=list)
    channel_free: float = 0.0


@dataclass
class DeploymentView:
    """What a dispatcher sees. Of requests that have not arrived there is nothing to see (-1, NaN).

    ``model``  place of the model that a request asks.
    ``ready``  when its input had been prepared (s).
    ``due``    when its pass has to end for its objective (s).
    """

    deployment: Deployment
    model: list[int]
    ready: list[float]
    due: list[float]
    groups: list[GroupView]
    now: float = 0.0


class Dispatcher:
    """Asked whenever something happens; the base leaves everything as it is."""

    def on_start(self, view: DeploymentView) -> Sequence[Action]:
        """Before the first request."""
        return ()

    def on_arrival(self, request: int, view: DeploymentView) -> Sequence[Action]:
        """A request's input is prepared."""
        return ()

    def on_free(self, group: int, view: DeploymentView) -> Sequence[Action]:
        """The first stage of a group has done what it was given."""
        return ()

    def on_loaded(self, group: int, model: int, view: DeploymentView) -> Sequence[Action]:
        """The weights of a model have arrived at a group."""
        return ()

    def on_time(self, view: DeploymentView) -> Sequence[Action]:
        """The moment of a ``Wake`` has come."""
        return ()
