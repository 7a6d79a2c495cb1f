"""What a family's run found: first the finding, then what it cost, a sentence each. Names are escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.core.differences import is_unseen
from experiments.core.rate_search import USUAL_DELAY
from experiments.core.units import human, significant
from webapp.presentation import metric
from webapp.runs.mesh_words import mesh_in_words, placement_in_words
from webapp.runs.models import Run
from webapp.runs.plan_topology import described_nodes, nodes_of


@dataclass(frozen=True)
class Told:
    """What the sentences are made of: the run, its figures by name and its stored outcome."""

    run: Run
    values: Mapping[str, float]
    outcome: Mapping[str, Any]

    def has(self, *names: str) -> bool:
        return all(name in self.values for name in names)

    def figure(self, name: str) -> Any:
        """In its unit, with the exact value on hover."""
        return metric(self.values[name], name)

    @property
    def workload(self) -> str:
        return workload_of(self.run)

    @property
    def where(self) -> str:
        """Its hardware; of a measured run the host."""
        return self.run.host.name if self.run.mode == "measured" and self.run.host else self.run.hardware


def workload_of(run: Run) -> str:
    """The upload's or model's name, without the ending of its file."""
    source = run.artifact.name if run.artifact else run.spec.get("workload", {}).get("source", "")
    return str(source or "its workload").removesuffix(".json")


def _memory(told: Told) -> Iterator[SafeString]:
    if not told.has("peak_memory", "step_time"):
        return
    options = told.run.spec.get("workload", {}).get("options", {})
    yield format_html(
        "{} {} {} in {} a step with {} of {}",
        told.run.policy,
        "runs" if options.get("training") is False else "trains",
        told.workload,
        told.figure("step_time"),
        told.figure("peak_memory"),
        told.where,
    )
    if told.has("ideal_share"):
        yield format_html("It reaches {} of the speed with endless memory.", told.figure("ideal_share"))
    if told.values.get("stall_time"):
        yield format_html("{} of a step computing waits.", told.figure("stall_time"))


def _parallel(told: Told) -> Iterator[SafeString]:
    if not told.has("step_time"):
        return
    share = format_html(", at {} of peak FLOP/s", told.figure("mfu")) if told.has("mfu") else ""
    yield format_html(
        "{} trains {} in {} a step on {}{}",
        told.run.policy,
        told.workload,
        told.figure("step_time"),
        _devices(told),
        share,
    )
    plan: Mapping[str, Any] = told.outcome.get("plan") or {}
    if mesh := mesh_in_words(plan):
        placed = placement_in_words(plan, nodes_of(told.outcome))
        yield format_html("The mesh is <strong>{}</strong>{}.", mesh, f": {placed}" if placed else "")


def _devices(told: Told) -> str:
    """``64 h100-80g``; the host or the spec's words where the outcome tells no nodes."""
    kinds = {str(node["device"]["name"]) for node in described_nodes(told.outcome)}
    if told.run.mode == "measured" or not told.has("devices") or not kinds:
        return told.where
    return f"{told.values['devices']:.0f} {' and '.join(sorted(kinds))}"


def _compilation(told: Told) -> Iterator[SafeString]:
    if not told.has("latency"):
        return
    latency = told.figure("latency")
    yield format_html(
        "{} computes {} in {} a call on {}", told.run.policy, told.workload, latency, told.where
    )
    if is_unseen("speedup", told.values):
        yield SafeString("No difference from eager was seen.")
    elif told.has("speedup"):
        yield format_html("That is {} times the speed of eager.", f"{told.values['speedup']:.2f}")
    if told.has("compile_time"):
        yield format_html("Compiling took {}.", told.figure("compile_time"))


def _cluster(told: Told) -> Iterator[SafeString]:
    if not told.has("avg_jct", "jobs"):
        return
    yield format_html(
        "{} completes {} of {} in {} each on average, on {}",
        told.run.policy,
        told.figure("jobs"),
        told.workload,
        told.figure("avg_jct"),
        told.where,
    )
    if told.has("p99_jct"):
        yield format_html("One of a hundred takes over {}.", told.figure("p99_jct"))
    if told.has("utilization"):
        yield format_html("{} of the devices' time is used.", told.figure("utilization"))
    if told.has("jct_error_mean"):
        error = told.values["jct_error_mean"]
        side = "more" if error > 0 else "less"
        yield format_html(
            "The simulator, calibrated before, had said {} {}.", f"{100 * abs(error):.1f} %", side
        )
    if told.values.get("unfinished_jobs"):
        yield format_html("{} are left.", told.figure("unfinished_jobs"))


def _serving(told: Told) -> Iterator[SafeString]:
    """By what the policy serves: requests with tokens, several models, models on one device, a pass."""
    if told.has("ttft_p50", "requests"):
        yield from _answers(told)
    elif told.has("slo_attainment", "requests", "latency_p50") and not told.has("realtime_overhead"):
        yield from _deployment(told)
    elif told.has("latency_p50", "requests"):
        yield from _sharing(told)
    elif told.has("latency"):
        yield from _pass(told)


def _answers(told: Told) -> Iterator[SafeString]:
    yield format_html(
        "{} answers half of {} of {} with a first token within {}, on {}",
        told.run.policy,
        told.figure("requests"),
        told.workload,
        told.figure("ttft_p50"),
        told.where,
    )
    if told.has("ttft_p99"):
        yield format_html("One of a hundred waits over {}.", told.figure("ttft_p99"))
    if told.has("throughput"):
        yield format_html("It completes {} requests a second.", f"{told.values['throughput']:.3g}")
    yield from _highest_rate(told)
    yield from _turned_away(told)


def _highest_rate(told: Told) -> Iterator[SafeString]:
    """What was asked of a rate, and up to which one it is kept."""
    if not told.has("max_rate"):
        return
    knobs, asked = told.run.spec.get("knobs") or {}, []
    tail = knobs.get("slo_tbt_p99")
    if knobs.get("wanted_attainment") and knobs.get("find_rate", True):
        asked.append(f"{significant(100 * knobs['wanted_attainment'])} % of requests within their objectives")
    if tail:
        delay = knobs.get("slo_delay_p50") or USUAL_DELAY
        asked.append(f"99 % of the times between tokens within {human(tail, 's')}")
        asked.append(f"half of the waits for a pass within {human(delay, 's')}")
    rate, kept = told.values["max_rate"], ", ".join(asked) or "its objectives"
    if rate:
        yield format_html("It keeps {} up to {} requests a second.", kept, significant(rate))
    else:
        yield format_html("It keeps {} at none of the rates that were tried.", kept)


def _deployment(told: Told) -> Iterator[SafeString]:
    models = (told.outcome.get("plan") or {}).get("models") or ()
    yield format_html(
        "{} answers {} of {} for {} models of {} in time, on {}",
        told.run.policy,
        told.figure("slo_attainment"),
        told.figure("requests"),
        len(models),
        told.workload,
        told.where,
    )
    yield format_html("Half take under {}", told.figure("latency_p50")) + _slowest(told)
    yield from _highest_rate(told)
    yield from _turned_away(told)


def _sharing(told: Told) -> Iterator[SafeString]:
    yield format_html(
        "{} answers half of {} of {} within {}, on {}",
        told.run.policy,
        told.figure("requests"),
        told.workload,
        told.figure("latency_p50"),
        told.where,
    )
    if told.has("realtime_overhead"):
        yield format_html("Sharing makes them {} slower than alone.", told.figure("realtime_overhead"))
    if told.has("slo_attainment"):
        yield format_html("{} are in time.", told.figure("slo_attainment"))
    if told.values.get("best_effort_throughput"):
        rate = f"{told.values['best_effort_throughput']:.3g}"
        yield format_html("What fills the device comes to {} passes a second.", rate)


def _pass(told: Told) -> Iterator[SafeString]:
    yield format_html(
        "{} takes {} for {} on {}", told.run.policy, told.figure("latency"), told.workload, told.where
    )
    if told.has("mfu"):
        yield format_html("That is {} of peak FLOP/s.", told.figure("mfu"))
    alternatives = (told.outcome.get("plan") or {}).get("alternatives") or {}
    for place, seconds in alternatives.items():
        yield format_html("All on the {} would take {}.", place, metric(seconds, "latency"))


def _slowest(told: Told) -> SafeString:
    if not told.has("latency_p99"):
        return SafeString(".")
    return format_html(", one of a hundred over {}.", told.figure("latency_p99"))


def _turned_away(told: Told) -> Iterator[SafeString]:
    if told.values.get("rejected_requests"):
        verb = "is" if told.values["rejected_requests"] == 1 else "are"
        yield format_html("{} {} turned away.", told.figure("rejected_requests"), verb)
    if told.values.get("context_limited_requests"):
        count = told.figure("context_limited_requests")
        yield format_html("Answers of {} end at the model's context.", count)


FINDINGS: Mapping[str, Callable[[Told], Iterator[SafeString]]] = {
    "memory": _memory,
    "parallel": _parallel,
    "compilation": _compilation,
    "cluster": _cluster,
    "serving": _serving,
}
