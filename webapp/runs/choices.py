"""What a new experiment asks for before it is launched: its state as an address has it, with nothing left
open that the page has a usual choice for.

The address names the form's own fields (``artifacts``, ``policies``, ``knob:...``), so that a reload, a link
or the way back shows what was chosen. ``family`` is the question that the policies shown are of; ``question``
is the one that was just pressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import QueryDict
from django.shortcuts import get_object_or_404

from experiments.core import jsonio
from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact, ArtifactQuerySet
from webapp.artifacts.workloads.jobs import demand_of
from webapp.runs import again
from webapp.runs.models import Experiment, Run
from webapp.runs.offers import SIMULATED, Offer, Told, offers_for, try_all

#: Fields of the page that are no part of its state.
FLEETING = ("csrfmiddlewaretoken", "question", "shown", "all", "then")
#: Fields that say how large a cluster is.
CLUSTER_SIZE = frozenset({"nodes", "devices_per_node", "node", "node_list", "described"})


@dataclass(frozen=True)
class Choices:
    """The form's fields as one would send them, and what they are about."""

    asked: QueryDict
    artifacts: tuple[Artifact, ...]
    offers: tuple[Offer, ...]
    family: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(artifact.kind for artifact in self.artifacts))

    @property
    def told(self) -> list[Told]:
        return told_of(self.artifacts)

    @property
    def shown(self) -> str:
        """What the lists of options and policies depend on: while it stays they need not be drawn anew."""
        told = [jsonio.digest(one)[:8] for one in self.told]
        return "/".join([self.family, *self.kinds, *sorted(self.asked.getlist("modes")), *told])

    @property
    def address(self) -> str:
        """The state as the query of an address; what is empty is left out."""
        kept = QueryDict(mutable=True)
        for name, values in self.asked.lists():
            if name not in FLEETING:
                kept.setlist(name, [value for value in values if value])
        return kept.urlencode(safe="/:")


def usable_artifacts(project: Project) -> ArtifactQuerySet:
    """The workloads to choose among: a captured step without times of its own is reached by its model, a list
    of nodes is hardware.
    """
    untimed = {"source": Artifact.Source.DERIVED, "summary__facts__timing": "none"}
    return Artifact.objects.of(project).ready().exclude(**untimed).exclude(kind="nodes")


def asked_by(project: Project, address: QueryDict) -> QueryDict:
    """What an address asks for, with the usual choices where it makes none: a state, an experiment
    (``?from=``), a run (``?run=``), artifacts (``?artifact=1&family=memory``) or policies
    (``?policy=memory/vdnn-all``); the latter two with any field of the form (``&devices=t4-16g``).
    """
    if "artifacts" in address and "family" in address:
        return address.copy()
    asked = address.copy() if "artifacts" in address else _as_query(_fields(project, address))
    if not asked.getlist("artifacts"):
        asked.setlist("artifacts", _newest(project, asked))
    for name, value in {**again.USUAL, **_usual_cluster(project, asked)}.items():
        asked.setdefault(name, value)
    return asked


def _usual_cluster(project: Project, asked: QueryDict) -> dict[str, str]:
    """The nodes that the page of the first chosen job trace compares it with; none where some are named."""
    if not CLUSTER_SIZE.isdisjoint(asked):
        return {}
    keys = read_keys(asked.getlist("artifacts"))
    trace = usable_artifacts(project).filter(pk__in=keys, kind="jobs").first()
    demand = demand_of(trace, {}) if trace else None
    return {"nodes": str(demand.nodes[0]), "devices_per_node": str(demand.nodes[1])} if demand else {}


def _fields(project: Project, address: QueryDict) -> dict[str, Any]:
    if "from" in address:
        kept = Experiment.objects.not_trashed()
        found = get_object_or_404(kept, pk=_uuid(address.get("from", "")), project=project)
        return again.from_experiment(found)
    if "run" in address:
        return again.from_run(get_object_or_404(Run, pk=_uuid(address.get("run", "")), project=project))
    return _read_link(project, address)


def _read_link(project: Project, address: QueryDict) -> dict[str, Any]:
    keys = read_keys(address.getlist("artifact"))
    family, chosen = address.get("family", ""), list(usable_artifacts(project).filter(pk__in=keys))
    shared = {name: address.getlist(name) for name in address if name not in ("artifact", "policy")}
    kinds = [artifact.kind for artifact in chosen]
    return again.preset(keys, family, address.getlist("policy"), kinds, told_of(chosen)) | shared


def told_of(artifacts: Iterable[Artifact]) -> list[Told]:
    """What their summaries say that they have; those of before this was said have all."""
    return [artifact.summary["told"] for artifact in artifacts if "told" in artifact.summary]


def read_keys(values: Iterable[int | str]) -> list[int]:
    """The values that may be an artifact's number."""
    return [int(value) for value in map(str, values) if value.isdecimal() and len(value) < 18]


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _as_query(fields: Mapping[str, Any]) -> QueryDict:
    query = QueryDict(mutable=True)
    for name, value in fields.items():
        query.setlist(name, list(map(str, value)) if isinstance(value, list | tuple) else [str(value)])
    return query


def _newest(project: Project, asked: QueryDict) -> list[str]:
    """The newest workload that the named policies read; of any family where none is named."""
    named = [asked.get("family", ""), *(key.split("/")[0] for key in asked.getlist("policies"))]
    families = set(filter(None, named))
    for artifact in usable_artifacts(project).exclude(source=Artifact.Source.DERIVED):
        offered = {
            offer.family for offer in offers_for([artifact.kind], told_of([artifact])) if offer.is_open
        }
        if offered & families if families else offered:
            return [str(artifact.pk)]
    return []


def settle(project: Project, given: QueryDict) -> Choices:
    """What was given and what it is about; a family that the workloads are not for gives way to the first
    that reads them, with all of its policies.
    """
    asked = given.copy()
    artifacts = _artifacts(project, asked)
    kinds = tuple(dict.fromkeys(artifact.kind for artifact in artifacts))
    offers = tuple(offers_for(kinds, told_of(artifacts)))
    family = _family(offers, asked)
    if family and family != asked.get("family"):
        _turn_to(family, kinds, told_of(artifacts), asked)
    asked["family"] = family
    return Choices(asked, artifacts, offers, family)


def _artifacts(project: Project, asked: QueryDict) -> tuple[Artifact, ...]:
    keys = read_keys(asked.getlist("artifacts"))
    found = usable_artifacts(project).in_bulk(keys)
    return tuple(found[key] for key in dict.fromkeys(keys) if key in found)


def _family(offers: Iterable[Offer], asked: QueryDict) -> str:
    """The question that was pressed, else the one shown, else that of the policies, else the first."""
    policies = [key.split("/")[0] for key in asked.getlist("policies")]
    wanted = [asked.get("question", ""), asked.get("family", ""), *policies]
    families = [offer.family for offer in offers if offer.is_open]
    return next((family for family in [*wanted, *families] if family in families), "")


def _turn_to(family: str, kinds: tuple[str, ...], told: Sequence[Told], asked: QueryDict) -> None:
    """Another question has other policies: all of them, unless an address names some of its own."""
    own = [key for key in asked.getlist("policies") if key.startswith(f"{family}/")]
    if asked.get("question") or not own:
        modes = asked.getlist("modes") or SIMULATED
        asked.setlist("policies", try_all(family, kinds, modes, told))
