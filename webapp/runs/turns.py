"""Whose run is next: users take turns, and what decides at once goes before what searches for minutes.

Fair queueing (Demers et al., SIGCOMM 1989), with the clock of what is served next (Golestani, INFOCOM 1994):
a run's turn is the virtual time at which it would end if all users were served at once, each at one rate. A
long queue of one user so delays another's first run by one run, and a search waits for as many quick runs as
it costs, never for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Max, Q, QuerySet

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import AT_ONCE, MINUTES, SECONDS
from webapp.hosts.models import Host
from webapp.runs.models import Run

#: What others wait for goes first: readings of files, questions that a page asks, then captures of steps.
PRIORITIES = {Run.Kind.INSPECT: 10, Run.Kind.ADVISE: 8, Run.Kind.CAPTURE: 5}
#: What nobody waits for, done when nothing else is to do.
IDLE = -1
#: Of a capture's spec: that it tells the law of the step's memory; that it measures what other optimizers and
#: forms of training need. Whoever makes such a run (``derivation``) says how soon it is wanted.
LAW, FORMS = "law", "forms"
#: Of a spec: the name of the one host that may carry the run out; any with the device where it says none.
HOST = "host"
#: What a run is charged by its policy's effort: about the seconds that it takes.
COSTS = {AT_ONCE: 1, SECONDS: 10, MINUTES: 100}
#: In which order queued runs are claimed.
ORDER = ("-priority", "turn", "queued_at", "id")


def enqueue(runs: Sequence[Run]) -> None:
    """Store runs as queued, each with its priority and turn."""
    give_turns(runs)
    Run.objects.bulk_create(runs)


def effort_of(family: str, policy: str) -> str:
    """How long the policy says that it takes; a run that names no policy decides nothing."""
    try:
        return registry.policy_class(family, policy).effort if policy else AT_ONCE
    except BadInput:
        return AT_ONCE  # the trial says what is wrong with it


def give_turns(runs: Sequence[Run]) -> None:
    """Set priority, effort and turn of runs that are about to be stored as queued.

    Runs of one user and one effort follow one another in the order given.
    """
    waiting = Run.objects.filter(state=Run.State.QUEUED)
    now = _virtual_time(waiting)
    told = waiting.filter(owner__in={run.owner_id for run in runs}).order_by()
    owned = told.values_list("owner", "effort").annotate(last=Max("turn"))
    last = {(owner, effort): turn for owner, effort, turn in owned}
    for run in runs:
        if not {LAW, FORMS} & run.spec.keys():
            run.priority = PRIORITIES.get(Run.Kind(run.kind), run.priority)
        run.effort = effort_of(run.family, run.policy)
        flow = (run.owner_id, run.effort)
        run.turn = last[flow] = max(now, last.get(flow, 0)) + COSTS[run.effort]


def _virtual_time(waiting: QuerySet[Run]) -> int:
    """When the run that is served next would begin; 0 while none waits that any host could take."""
    kinds = {kind for kinds in Host.objects.values_list("device_kinds", flat=True) for kind in kinds}
    ready = waiting.filter(Q(after=None), needs__in=["", *kinds]) if kinds else waiting
    first = ready.order_by(*ORDER).only("turn", "effort").first()
    return max(0, first.turn - COSTS.get(first.effort, 0)) if first else 0
