"""``advise MODEL --hardware H [--nodes N]``: how to train a model on a device or on several, with figures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments import hardware
from experiments.advisor import GOALS, Advice, Answer, Ask, advise, answer_of, describe_validation, sentences
from experiments.advisor.ask import MARGIN
from experiments.advisor.rows import Row
from experiments.commands.model import options_of
from experiments.commands.output import json_option, progress_of, progress_option, table, write_json
from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.core.units import human, significant


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("advise", help="how to train a model on a device or on several")
    parser.add_argument("model", help="zoo:NAME or a model file")
    parser.add_argument(
        "--hardware",
        required=True,
        help='a device\'s or a node\'s sheet, or JSON such as {"device": NAME, "overrides": {}}',
    )
    parser.add_argument("--nodes", type=int, help="nodes of that sheet")
    parser.add_argument("--devices", type=int, help="devices in a node, of a device's sheet")
    parser.add_argument("--batch", type=int, help="samples per step")
    parser.add_argument("--sequence", type=int, help="tokens per sample")
    parser.add_argument("--goal", choices=GOALS, default=GOALS[0], help="what is to be least")
    parser.add_argument(
        "--margin", type=float, default=MARGIN, help="share of memory that the plan leaves free"
    )
    parser.add_argument("--format", default="auto")
    parser.add_argument("--options", default="{}", help="workload options as JSON, or @FILE")
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def ask_of(arguments: argparse.Namespace) -> Ask:
    options = options_of(arguments.options)
    for name in ("batch", "sequence"):
        given, there = getattr(arguments, name), getattr(options, name)
        if given is None:
            continue
        if there not in (None, given):
            raise BadInput(f"{given} and {name} {there} of --options", f"--{name}", "one of them")
        options = knobs.load(WorkloadOptions, {**asdict(options), name: given}, "options")
    workload = Workload(arguments.model, arguments.format, options)
    machines = hardware_of(arguments.hardware, arguments.nodes, arguments.devices)
    return Ask(workload, machines, arguments.goal, arguments.margin)


def hardware_of(text: str, nodes: int | None, devices: int | None) -> str | Mapping[str, Any]:
    """A sheet's name with the nodes and devices asked for, or an object as RunSpecs have it."""
    if text.lstrip().startswith(("{", "[")):
        found = jsonio.loads(text, "--hardware")
        if not isinstance(found, dict):
            raise BadInput(f"{found!r:.80} is not a device or a cluster", "--hardware", "an object")
        if nodes is not None or devices is not None:
            raise BadInput("nodes and devices beside an object", "--hardware", "them inside the object")
        return found
    if nodes is None and devices is None:
        return text
    if text in hardware.names("node"):
        some = {} if devices is None else {"devices_per_node": devices}
        return {"cluster": {"node": text, "nodes": 1 if nodes is None else nodes, **some}}
    counts = {"nodes": 1 if nodes is None else nodes, "devices_per_node": 1 if devices is None else devices}
    return text if set(counts.values()) == {1} else {"cluster": {"device": text, **counts}}


def call(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    advice = advise(ask_of(arguments), progress_of(arguments))
    seconds = time.perf_counter() - began
    if arguments.json:
        write_json({**_document(advice), "seconds": round(seconds, 3)})
    elif isinstance(advice, Advice):
        print("\n".join(sentences(advice)))
        print(f"\n{rows_table(advice)}\n\nin {human(seconds, 's')}")
    else:
        print(f"{_in_text(answer_of(advice))}\n\nin {human(seconds, 's')}")
    advice.refuse_misfits()


def _document(advice: Any) -> dict[str, Any]:
    """The answer for a page; for one device every row of the ladder too."""
    answer = answer_of(advice)
    shown = {**answer.to_json(), "validation": validation_of(answer)}
    if isinstance(advice, Advice):
        return {**advice.to_json(), "answer": sentences(advice), "document": shown}
    return {"ask": advice.ask.to_json(), "document": shown}


def validation_of(answer: Answer) -> str:
    family = "memory" if answer.facts["devices"] == 1 else "parallel"
    return describe_validation(answer.device, family)


def _in_text(answer: Answer) -> str:
    """The whole answer for several devices."""
    if not answer.fits:
        return answer.finding
    facts = answer.facts
    lines = [f"{answer.finding}: {answer.price}.", *answer.explanation]
    lines.append(
        f"Batch {facts['batch']} x {facts['sequence']:,} tokens, {facts['precision']}, {facts['optimizer']}, "
        f"on {facts['hardware']}; simulated, {validation_of(answer)}."
    )
    lines += ["", *(f"{n}. {r['what']}. {r['why']}" for n, r in enumerate(answer.reasons, 1))]
    lines += ["", _plans_table(answer), "", _rejected_table(answer)]
    for settings in answer.settings:
        lines += ["", f"{settings.dialect}:", settings.text, *settings.notes]
    return "\n".join(lines)


def _plans_table(answer: Answer) -> str:
    headings = ("", "plan", "peak memory", "step time", "MFU", "price", "why you might")
    rows = [
        (
            plan.letter,
            plan.name,
            human(plan.peak, "bytes"),
            human(plan.seconds, "s"),
            human(plan.mfu, "fraction") if plan.mfu is not None else "-",
            f"{significant(plan.price)} x",
            plan.why,
        )
        for plan in answer.plans
    ]
    return table(headings, rows)


def _rejected_table(answer: Answer) -> str:
    facts = answer.facts
    title = (
        f"{facts['evaluated']:,} of {facts['plans']:,} plans in closed form, {facts['simulated']} simulated:"
    )
    rows = [(str(row["idea"]), f"{row['plans']:,}", str(row["reason"])) for row in answer.rejected]
    return f"{title}\n\n{table(('rejected', 'plans', 'reason'), rows)}"


def rows_table(advice: Advice) -> str:
    """Every way tried; offloaded alternatives below the ladder."""
    capacity = advice.ask.capacity
    headings = ("added", "peak memory", "fits", "step time", "per second", "trains", "gives up")
    return table(headings, [_cells(advice, row, capacity) for row in advice.rows])


def _cells(advice: Advice, row: Row, capacity: int) -> tuple[str, ...]:
    name = f"+ {row.name}" if row in advice.rungs else " + ".join((*row.changed, row.name))
    excess = row.excess(capacity)
    fits = "yes" if row.fits else "no" if excess is None else f"{human(excess, 'bytes')} too much"
    rate = next((one for one in ("tokens_per_second", "samples_per_second") if one in row.metrics), None)
    return (
        ("* " if row is advice.chosen else "") + name,
        human(row.peak, "bytes") if row.peak is not None else "-",
        fits,
        human(row.seconds, "s") if row.seconds is not None else "-",
        f"{row.value(rate):,.0f} {rate.split('_')[0]}" if rate else "-",
        row.trains,
        "; ".join(row.gives_up) or "-",
    )
