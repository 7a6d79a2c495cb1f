"""Clusters that a node list of the project describes: how a spec names one, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput
from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact, ArtifactQuerySet
from webapp.runs.references import find_artifact, require_artifact

KIND = "nodes"
#: The family whose clusters may be lists of nodes.
FAMILY = "cluster"
WHERE = "spec.hardware.nodes"


@dataclass(frozen=True)
class NodeCluster:
    """The cluster of a node list, by the figures that its reading stored."""

    artifact: Artifact

    @property
    def nodes(self) -> int:
        return int(self.artifact.summary["node_list"]["nodes"])

    @property
    def types(self) -> Mapping[str, int]:
        """Devices by type, the most first."""
        return dict(self.artifact.summary["node_list"]["devices"])

    @property
    def device_count(self) -> int:
        return sum(self.types.values())

    @property
    def label(self) -> str:
        """As lists of runs name it."""
        return f"{str(self.artifact)[:80]} ({self.nodes:,} nodes)"

    @property
    def words(self) -> str:
        return f"{self.nodes:,} nodes of {self.artifact} with {self.device_count:,} GPUs"


def node_lists_of(project: Project) -> ArtifactQuerySet:
    """The node lists that a cluster may be."""
    return Artifact.objects.of(project).ready().filter(kind=KIND)


def named_list(hardware: Any) -> str | None:
    """How the hardware of a spec names its node list; ``None`` where it is described otherwise."""
    inner = hardware.get("cluster", hardware) if isinstance(hardware, Mapping) else None
    found = inner.get("nodes") if isinstance(inner, Mapping) else None
    return found if isinstance(found, str) else None


def cluster_listed(project: Project, hardware: Any) -> NodeCluster | None:
    """What the node list has that ``hardware`` names; ``None`` where it names none of the project."""
    reference = named_list(hardware)
    found = find_artifact(node_lists_of(project), reference) if reference else None
    return NodeCluster(found) if found else None


def hardware_of(nodes: Artifact) -> dict[str, str]:
    """The hardware of a spec whose cluster is this list."""
    return {"nodes": f"artifact:{nodes.pk}"}


def settle_nodes(project: Project, hardware: Any, family: str) -> Any:
    """``hardware`` with its node list named by its number; ``BadInput`` where that is none of the project."""
    reference = named_list(hardware)
    if reference is None:
        return hardware
    if family != FAMILY:
        raise BadInput(f"a node list for a {family} run", WHERE, "a cluster described by its parts")
    found = require_artifact(project, reference, WHERE)
    if found.state == Artifact.State.READY and found.kind != KIND:
        raise BadInput(f"{reference:.80} is no node list", WHERE, "columns name, gpus and type")
    return hardware_of(found)
