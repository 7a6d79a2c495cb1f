"""Where a run's figures come from: six lines, and the rest on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.units import human
from webapp.presentation import pretty

#: Parts of the provenance that have a place of their own on the page.
TOLD_APART = (
    *("hardware", "timing", "timed_on", "timeline", "states", "full_peak", "warnings"),
    *("settled", "tried", "names", "search_seconds", "knobs_reached"),
)
#: What the six lines say.
IN_LINES = (
    "versions.",
    "host.",
    "revision",
    "workload_sha256",
    "started",
    "seconds",
    "load_before",
    "concurrent",
)
#: How the lines of the provenance begin that a measured speed-up has.
RATIO = "compilation.timing.ratio."
#: Units of figures in the provenance, by the name or by how it begins.
UNITS = {
    "seconds": "s",
    "first_step_time": "s",
    "codec_time": "s",
    "stall_by_cause.": "s",
    "live_peak": "bytes",
    "largest_op_need": "bytes",
    "peak_by_tier.": "bytes",
    "bytes_by_channel.": "bytes",
}
#: Digits of a hash that tell it from others; all of it is on hover.
DIGITS = 12


@dataclass(frozen=True)
class Provenance:
    """Lines in words; ``alone`` says what else ran on the host, ``rest`` is all else by name."""

    host: str
    alone: str
    code: SafeString
    libraries: str
    workload: SafeString
    rest: tuple[tuple[str, Any], ...]


def provenance_of(outcome: Mapping[str, Any]) -> Provenance:
    told: Mapping[str, Any] = outcome.get("provenance") or {}
    versions: Mapping[str, str] = told.get("versions") or {}
    return Provenance(
        host=_host(told.get("host") or {}),
        alone=", ".join(_alone(told)),
        code=_short(str(told.get("revision") or "")),
        libraries=", ".join(f"{name} {version}" for name, version in versions.items()),
        workload=_short(str(told.get("workload_sha256") or "")),
        rest=tuple(_rest(told)),
    )


def _host(host: Mapping[str, Any]) -> str:
    said = [str(host["name"])] if host.get("name") else []
    return ", ".join([*said, *([f"{host['cores']} cores"] if host.get("cores") else [])])


def _alone(told: Mapping[str, Any]) -> Iterator[str]:
    """What else was at work on the host of a measured run."""
    if concurrent := told.get("concurrent"):
        yield f"concurrent: {pretty(concurrent)}"
    if told.get("load_before") is not None:
        yield f"load before {told['load_before']:g}"


def _short(digest: str) -> SafeString:
    return (
        format_html('<span class="mono" title="{}">{}</span>', digest, digest[:DIGITS])
        if digest
        else SafeString("")
    )


def ended_for_time(told: Mapping[str, Any]) -> str:
    """``the search ended at its limit of 60 s ...``; empty for a run that no limit of time ended."""
    if "search_seconds" not in told:
        return ""
    reached = ", ".join(
        f"{name} = {pretty(value)}" for name, value in (told.get("knobs_reached") or {}).items()
    )
    again = (
        f"; it is the same again on any host with {reached}" if reached else "; another host may find another"
    )
    return (
        f"the search ended at its limit of {human(told['search_seconds'], 's')} with the best so far{again}"
    )


def _rest(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What has no place of its own on the page; a ratio has one, with its interval or the words for it."""
    for name, value in _flat({n: v for n, v in provenance.items() if n not in TOLD_APART}):
        if not name.startswith((RATIO, *IN_LINES)):
            yield name.replace(".", ": ").replace("_", " "), value


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested provenance as lines: ``timing.clock``, ``trace.jobs``."""
    lines: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += _flat(value, f"{prefix}{name}.")
        else:
            lines.append((f"{prefix}{name}", _with_unit(f"{prefix}{name}", value)))
    return lines


def _with_unit(name: str, value: Any) -> Any:
    unit = next((unit for known, unit in UNITS.items() if name == known or name.startswith(known)), "")
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return human(value, unit) if unit and is_figure else value
