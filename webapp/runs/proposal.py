"""What an experiment would be, before it is launched: its runs, their time, what it asks of the hardware, and
what speaks against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments import hardware
from experiments.core.units import human
from experiments.hardware import Hardware
from webapp.hosts import evidence
from webapp.hosts.models import Host
from webapp.runs.demand import Load, Need, load_of, need_of
from webapp.runs.durations import Estimate, Key, Past, estimate
from webapp.runs.forms import ExperimentForm
from webapp.runs.grid import LOCAL, Expansion, Trial
from webapp.runs.hardware_picture import Picture, picture_of, words_of
from webapp.runs.models import Run
from webapp.runs.node_lists import NodeCluster, cluster_listed, named_list
from webapp.runs.services import hardware_label
from webapp.runs.spec_words import Sentence, sentence_of


@dataclass(frozen=True)
class Hosts:
    """The hosts that are up: their slots, those that are free, what measured runs may ask for."""

    slots: int
    free: int
    kinds: tuple[str, ...]
    waiting: int


@dataclass(frozen=True)
class Proposal:
    """Everything but ``hosts`` is empty while the form has errors.

    ``listed`` are the clusters of node lists.
    ``errors`` are (field, label, what is wrong), ``warnings`` what to know before pressing.
    """

    trials: tuple[Trial, ...]
    errors: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]
    sentence: Sentence | None
    picture: Picture | None
    time: Estimate | None
    need: Need | None
    load: Load | None
    hosts: Hosts
    listed: tuple[NodeCluster, ...] = ()

    @property
    def starts_at_once(self) -> bool:
        return self.hosts.free > 0 and not self.hosts.waiting


def propose(form: ExperimentForm, past: Mapping[Key, Past]) -> Proposal:
    """The proposal of a bound form."""
    hosts = hosts_now()
    if not form.is_valid():
        return Proposal((), tuple(_errors(form)), (), (), None, None, None, None, None, hosts)
    expansion: Expansion = form.cleaned_data["expansion"]
    trials = expansion.trials
    kinds = {hardware_label(t.spec["hardware"]): t.spec["hardware"] for t in trials}
    listed = {label: cluster_listed(form.project, spec) for label, spec in kinds.items()}
    known = {
        label: hardware.resolve(spec)
        for label, spec in kinds.items()
        if not _is_here(spec) and named_list(spec) is None
    }
    first = next(iter(known.values()), None)
    need = need_of(trials, first) if first else None
    clusters = [first, *listed.values()]
    devices = [cluster.device_count for cluster in clusters if cluster]
    load = load_of(trials, min(devices)) if devices else None
    warnings = (*_warnings(trials, need, load, hosts), *form.warnings, *_list_unvalidated(trials, known))
    return Proposal(
        trials,
        (),
        warnings,
        expansion.left_out,
        sentence_of(trials, [_hardware_words(label, known, listed) for label in kinds]),
        picture_of(first) if first else None,
        estimate(trials, past, hosts.slots),
        need,
        load,
        hosts,
        tuple(cluster for cluster in listed.values() if cluster),
    )


def _hardware_words(
    label: str, known: Mapping[str, Hardware], listed: Mapping[str, NodeCluster | None]
) -> str:
    if cluster := listed[label]:
        return cluster.words
    return words_of(known[label]) if label in known else "the host's own device"


def _is_here(spec: object) -> bool:
    """A measured run has the device of the host that carries it out."""
    return (spec.get("device") if isinstance(spec, Mapping) else spec) == LOCAL


def _errors(form: ExperimentForm) -> Iterator[tuple[str, str, str]]:
    for name, found in form.errors.items():
        label = str(form[name].label) if name in form.fields else ""
        whose = f"{name.split(':')[1].split('/')[-1]}: " if name.startswith("knob:") else ""
        yield from ((name, whose + label, str(error)) for error in found)


def hosts_now() -> Hosts:
    up = [host for host in Host.objects.with_load() if host.is_up]
    slots, busy = sum(host.slots for host in up), sum(host.busy for host in up)  # type: ignore[attr-defined]
    kinds = tuple(dict.fromkeys(kind for host in up for kind in host.device_kinds))
    return Hosts(slots, max(slots - busy, 0), kinds, Run.objects.queue_lengths()["total"])


def _warnings(trials: Sequence[Trial], need: Need | None, load: Load | None, hosts: Hosts) -> Iterator[str]:
    family = trials[0].spec["family"]
    if need and not need.fits and family == "memory":
        over = human(need.bytes - need.capacity, "bytes")
        yield f"As it is the step does not fit {need.device}: {over} over. The runs say which policies fit."
    if load and load.share > 1:
        yield f"The jobs want {load.wanted:,.1f} GPUs on average and there are {load.gpus:,}: they pile up."
    if load and load.too_large:
        who = f"{load.too_large:,} job{' wants' if load.too_large == 1 else 's want'}"
        yield f"{who} more than the {load.gpus:,} GPUs that there are and can never start."
    if not hosts.slots:
        yield "No host is up: the runs wait until one is."
    wanted = {trial.needs for trial in trials} - {"", *hosts.kinds}
    if hosts.slots and wanted:
        yield f"No host with {' or '.join(sorted(wanted))} is up: measured runs wait until one is."


def _list_unvalidated(trials: Sequence[Trial], known: Mapping[str, Hardware]) -> Iterator[str]:
    errors = evidence.simulator_errors()
    families = dict.fromkeys(trial.spec["family"] for trial in trials)
    missing = [
        f"{family} on {label}" for family in families for label in known if not errors.of(family, label)
    ]
    if missing:
        yield f"Not validated, so figures come without an error: {', '.join(missing)}."
