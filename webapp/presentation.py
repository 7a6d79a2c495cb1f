"""Template filters and tags, built into every template: figures, badges, times and links inside
the project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from experiments.core import knobs, registry
from experiments.core.errors import BadInput
from experiments.core.metrics import known_or_plain
from experiments.core.units import human
from webapp.hosts import evidence

register = template.Library()

#: How a moment is written into the names of experiments and into reasons, and how it is found there.
MOMENT_FORMAT = "%d %b %Y %H:%M UTC"
MOMENT = re.compile(r"\b\d{2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d{2}:\d{2} UTC\b")

#: Unitless words after a figure that ``human`` prints as they are.
STATE_MARKS: Mapping[str, str] = {
    "queued": "○",
    "running": "▶",
    "succeeded": "✓",
    "ready": "✓",
    "ok": "✓",
    "failed": "✗",
    "rejected": "⊘",
    "cancelled": "–",
    "waiting": "○",
    "infeasible": "▽",
    "up": "✓",
    "away": "✗",
    "claims nothing": "✗",
    "reproduced": "✓",
    "reproduced by proxy": "✓",
    "direction only": "≈",
    "not reproduced": "✗",
    "fitted": "=",
    "identity": "=",
    "fits": "✓",
    "cannot be carried out": "–",
    "not run": "○",
}


@register.filter
def figure(value: Any, unit: str = "") -> Any:
    """``{{ 2**30|figure:"bytes" }}``: as people read it, with the exact value on hover; a dash
    for nothing.
    """
    if value is None or value == "":
        return mark_safe('<span class="none">–</span>')
    if isinstance(value, bool | str):
        return value
    shown = human(float(value), unit)
    return format_html('<span class="num" title="{} {}">{}</span>', exact(value), unit, shown)


@register.filter
def error(value: float) -> SafeString:
    """A relative error; what is too small to matter is said to be, with the exact value on hover."""
    return format_html('<span class="num" title="{}">{}</span>', exact(value), evidence.shown_error(value))


@register.filter
def exact(value: Any) -> str:
    """All digits: ``124439808`` -> ``124,439,808``, ``0.1`` -> ``0.1``."""
    if isinstance(value, float) and not value.is_integer():
        return repr(value)
    return f"{int(value):,}"


@register.filter
def metric(value: Any, name: str) -> Any:
    """A run's figure in its metric's unit."""
    return figure(value, known_or_plain(name).unit)


@register.filter
def metric_label(name: str) -> str:
    return known_or_plain(name).label


@register.filter
def direction(name: str) -> SafeString:
    """Whether up or down is better, from the metric itself."""
    better = known_or_plain(name).lower_is_better
    if better is None:
        return mark_safe("")
    mark, words = ("↓", "lower is better") if better else ("↑", "higher is better")
    return format_html('<span class="direction" title="{}" aria-label="{}">{}</span>', words, words, mark)


@register.filter
def percent(fraction: float | None) -> str:
    return f"{100 * (fraction or 0):.0f} %"


@register.filter
def pretty(value: Any) -> str:
    """A value of a knob, option or plan as text: names with commas between, JSON for other structure."""
    if value is None or value in ([], {}):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list) and all(isinstance(entry, str | float) for entry in value):
        return ", ".join(map(pretty, value))
    return json.dumps(value, ensure_ascii=False)


@register.simple_tag
def knob_unit(family: str, policy: str, name: str) -> str:
    """The unit of a policy's knob; empty where it has none, or where there is no such policy any more."""
    try:
        known = knobs.describe(registry.policy_class(family, policy))
    except BadInput:
        return ""
    return next((knob.unit for knob in known if knob.name == name), "")


@register.filter
def item(mapping: Mapping[Any, Any], key: Any) -> Any:
    return mapping.get(key)


@register.simple_tag
def when(moment: datetime | None) -> SafeString:
    """A moment in the reader's own time zone (set by ``page.js``), UTC on hover; another year is named."""
    if moment is None:
        return mark_safe('<span class="none">–</span>')
    utc = moment.astimezone(UTC)
    text = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    year = "" if utc.year == timezone.now().year else f" {utc:%Y}"
    return format_html(
        '<time datetime="{}" title="{}" data-local>{}</time>',
        utc.isoformat(timespec="seconds"),
        text,
        f"{utc:%d %b}{year} {utc:%H:%M} UTC",
    )


@register.filter
def with_local_times(text: Any) -> SafeString:
    """A name or reason with the moments in it (``23 Nov 2026 22:30 UTC``) in the reader's own time zone."""
    *before, last = _moments(str(text))
    return format_html("{}{}", format_html_join("", "{}{}", before), last)


def _moments(text: str) -> Iterator[Any]:
    """Pairs of what stands before a moment and the moment, and what stands after the last."""
    begin = 0
    for found in MOMENT.finditer(text):
        moment = datetime.strptime(found[0], MOMENT_FORMAT).replace(tzinfo=UTC)
        yield text[begin : found.start()], when(moment)
        begin = found.end()
    yield text[begin:]


@register.filter
def duration(run: Any) -> float | None:
    """Seconds from start to end, or to now while it runs."""
    if run.started_at is None or run.state == "queued":
        return None
    seconds: float = ((run.finished_at or timezone.now()) - run.started_at).total_seconds()
    return seconds


@register.simple_tag
def state_badge(state: str, words: str = "") -> SafeString:
    """A state in words with a mark of its own: color is never the only sign."""
    return format_html(
        '<span class="badge state-{}"><span aria-hidden="true">{}</span> {}</span>',
        state.replace(" ", "-"),
        STATE_MARKS.get(state, "○"),
        words or state,
    )


@register.filter
def state_mark(state: str) -> str:
    return STATE_MARKS.get(state, "○")


@register.simple_tag(takes_context=True, name="mode_badge")
def mode_badge_tag(context: template.Context, mode: str, family: str = "", hardware: str = "") -> SafeString:
    """``{% mode_badge run.mode run.family run.hardware %}``."""
    return mode_badge(context["request"], mode, family, hardware)


def mode_badge(request: HttpRequest, mode: str, family: str = "", hardware: str = "") -> SafeString:
    """``measured`` or ``simulated``; the latter with the error of the family's simulator on that device.

    Without a family and hardware it is of several, and each figure has a badge of its own.
    """
    if not mode:
        return mark_safe("")
    if mode == "measured":
        return _mode_badge(mode, "carried out by torch on the named host")
    title = "carried out by the simulator on named hardware"
    if not (family and hardware):
        return _mode_badge(mode, title)
    error = simulator_errors(request).of(family, hardware)
    if error is None:
        return _mode_badge(mode, f"{title}; {evidence.NOT_VALIDATED}", evidence.NOT_VALIDATED)
    return _mode_badge(mode, f"{title}; {error.words}", f"err. {evidence.shown_error(error.fraction)}")


def _mode_badge(mode: str, title: str, more: str = "") -> SafeString:
    shown = format_html(' <span class="error">{}</span>', more) if more else ""
    return format_html('<span class="badge mode-{}" title="{}">{}{}</span>', mode, title, mode, shown)


def simulator_errors(request: HttpRequest) -> evidence.SimulatorErrors:
    """Read once for each request, however many badges it shows."""
    found: evidence.SimulatorErrors | None = getattr(request, "_simulator_errors", None)
    if found is None:
        found = request._simulator_errors = evidence.simulator_errors()  # type: ignore[attr-defined]
    return found


@register.simple_tag(takes_context=True)
def here(context: template.Context, name: str, **more: Any) -> str:
    """The address of a page of the current project: ``{% here "runs:run" run=run.id %}``."""
    request = context["request"]
    return reverse(name, kwargs={"team": request.team.slug, "project": request.project.slug, **more})


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: Any) -> str:
    """The current query string with some parameters changed; ``None`` takes one out."""
    values = context["request"].GET.copy()
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return f"?{values.urlencode()}"


@register.inclusion_tag("parts/plot.html")
def plot(id: str, data: Mapping[str, Any], height: int = 320) -> dict[str, Any]:
    """A plot (the JSON of ``experiments.summaries``) drawn by ``plots.js``; ``id`` is unique on the page."""
    return {"id": id, "plot": data, "height": height}


@register.inclusion_tag("parts/field.html")
def field(bound: Any) -> dict[str, Any]:
    """A form field with its label, help and errors."""
    return {"field": bound}


@register.inclusion_tag("parts/bar.html")
def bar(fraction: float, label: str = "progress") -> dict[str, Any]:
    return {"fraction": fraction, "label": label}


@register.simple_tag(takes_context=True)
def compare_link(context: template.Context, experiment: Any) -> SafeString:
    """The way from an ended experiment to its comparison."""
    url = here(context, "compare:experiment", experiment=experiment.pk)
    return format_html('<a class="button primary slim" href="{}">Compare the runs</a>', url)
