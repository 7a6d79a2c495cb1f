"""One way to train, carried out by ``experiments.run``: its figures can be had again from its specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.advisor.ask import Ask
from experiments.advisor.ladder import Setting, Way
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Outcome, RunSpec
from experiments.core.units import human
from experiments.run import run

#: How often more memory is given to a policy whose plan follows from it, until one is found.
TRIES = 4
OK = "ok"


@dataclass(frozen=True)
class Row:
    """What a setting comes to on the device.

    ``name``          of the change made last.
    ``changed``       changes of the options so far, by name.
    ``by``            what else is done, by name; ``acts`` says whether its policy found anything to do.
    ``spec``          the run on the device asked about.
    ``figures_spec``  the run that ``metrics`` are of: the same, or where it does not fit, with memory that
                      suffices.
    ``metrics``       as outcomes have them; empty where no memory sufficed.
    ``trains``        which weights, in words.
    ``note``          what the policy says of its plan.
    """

    name: str
    changed: tuple[str, ...]
    by: str
    acts: bool
    gives_up: tuple[str, ...]
    spec: Mapping[str, Any]
    spec_id: str
    figures_spec: Mapping[str, Any]
    fits: bool
    reason: str | None
    metrics: Mapping[str, Mapping[str, Any]]
    trains: str
    note: str
    at_full_peak: bool

    def value(self, metric: str) -> float | None:
        found = self.metrics.get(metric)
        return float(found["value"]) if found else None

    @property
    def title(self) -> str:
        """All that differs from what was asked, by name; a policy that finds nothing to do is not named."""
        names = (*self.changed, *([self.by] if self.by and self.acts else []))
        text = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "as asked"
        return f"{text}, with nothing moved or recomputed" if self.by and not self.acts else text

    @property
    def peak(self) -> float | None:
        return self.value("peak_memory")

    @property
    def seconds(self) -> float | None:
        return self.value("step_time")

    def excess(self, capacity: int) -> float | None:
        """Bytes that are lacking on a device of that capacity."""
        return None if self.fits or self.peak is None else max(self.peak - capacity, 0.0)

    def to_json(self, capacity: int) -> dict[str, Any]:
        return {**asdict(self), "missing_bytes": self.excess(capacity)}


def carry_out(ask: Ask, setting: Setting, name: str, progress: Progress) -> Row:
    """Carry ``setting`` out by the first of its ways that has something to do.

    ``BadInput`` where none has, or where its options do not apply to the model.
    """
    reasons = []
    for number, way in enumerate(setting.ways):
        share = part(progress, number / len(setting.ways), (number + 1) / len(setting.ways))
        workload = replace(ask.workload, options=setting.options)
        spec = RunSpec("memory", way.policy, workload, ask.hardware, way.knobs)
        outcome = _with_margin(ask, spec, way, part(share, 0.0, 0.6))
        figures = outcome if outcome.status == OK else _with_enough_memory(ask, spec, way, outcome, share)
        if len(setting.ways) == 1 or _does_something(figures):
            return _row(outcome, figures, setting, name)
        reasons.append(_note(figures.plan) or f"{way.policy} finds nothing to recompute")
    raise BadInput("; ".join(reasons), "policy", "a step with layers or segments to recompute")


def _with_margin(ask: Ask, spec: RunSpec, way: Way, progress: Progress) -> Outcome:
    """The run of ``spec``; where its plan takes what memory there is, with the margin left free, if that
    fits.
    """
    kept = round(ask.margin * ask.capacity)
    if not (way.adapts and kept):
        return run(spec, progress)
    roomy = run(replace(spec, hardware=ask.with_memory(ask.capacity - kept)), part(progress, 0.0, 0.5))
    return roomy if roomy.status == OK else run(spec, part(progress, 0.5, 1.0))


def _with_enough_memory(ask: Ask, spec: RunSpec, way: Way, outcome: Outcome, progress: Progress) -> Outcome:
    """The same run on the device with memory that suffices: as much as the policy says is missing where its
    plan follows from that, else more than any plan of the step needs.
    """
    size = ask.capacity
    for attempt in range(TRIES):
        if outcome.status != "infeasible" or "missing_bytes" not in outcome.provenance:
            return outcome
        noted = outcome.provenance
        more = noted["missing_bytes"] if way.adapts else 4 * noted["live_peak"]
        size += int(more) + 1
        share = part(progress, 0.6 + 0.1 * attempt, 0.7 + 0.1 * attempt)
        outcome = run(replace(spec, hardware=ask.with_memory(size)), share)
    return outcome


def _does_something(outcome: Outcome) -> bool:
    return bool(outcome.plan.get("moves")) or outcome.plan.get("splits", 1) > 1


def _note(plan: Mapping[str, Any]) -> str:
    notes = plan.get("notes", {})
    return str(notes.get("chosen") or notes.get("reason") or "")


def caveats(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """What the plan itself says is not as in the plain step."""
    caveat = plan.get("notes", {}).get("caveat")
    return (str(caveat),) if caveat else ()


def _row(outcome: Outcome, figures: Outcome, setting: Setting, name: str) -> Row:
    return Row(
        name=name,
        changed=setting.changed,
        by=setting.by,
        acts=_does_something(figures),
        gives_up=(*setting.gives_up, *caveats(figures.plan)),
        spec=outcome.spec,
        spec_id=outcome.spec_id,
        figures_spec=figures.spec,
        fits=outcome.status == OK,
        reason=outcome.reason,
        metrics=figures.metrics,
        trains=_describe_trained(figures.provenance, setting),
        note=_note(figures.plan),
        at_full_peak=bool(figures.provenance.get("full_peak")),
    )


def _describe_trained(provenance: Mapping[str, Any], setting: Setting) -> str:
    if not setting.options.training:
        return "nothing"
    share = provenance.get("states", {}).get("trained")
    if setting.options.adapter != "none":
        return "adapters only" if share is None else f"adapters only ({human(share, 'fraction')})"
    return "all weights" if share is None else f"{human(share, 'fraction')} of the weights"
