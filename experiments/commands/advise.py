"""``advise MODEL --hardware H``: what to do where a model's step does not fit a device, with figures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments.advisor import GOALS, Advice, Ask, advise, sentences
from experiments.advisor.ask import ONE_DEVICE
from experiments.advisor.rows import Row
from experiments.commands.model import options_of
from experiments.commands.output import json_option, progress_of, progress_option, table, write_json
from experiments.core import jsonio, knobs
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.core.units import human


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("advise", help="how to train a model on a device")
    parser.add_argument("model", help="zoo:NAME or a model file")
    parser.add_argument(
        "--hardware", required=True, help='a device, or JSON such as {"device": NAME, "overrides": {}}'
    )
    parser.add_argument("--nodes", type=int, default=1, help="1: several are not advised on yet")
    parser.add_argument("--batch", type=int, help="samples per step")
    parser.add_argument("--sequence", type=int, help="tokens per sample")
    parser.add_argument("--goal", choices=GOALS, default=GOALS[0], help="what is to be least")
    parser.add_argument("--format", default="auto")
    parser.add_argument("--options", default="{}", help="workload options as JSON, or @FILE")
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def ask_of(arguments: argparse.Namespace) -> Ask:
    """Return the question; ``BadInput`` for several nodes, or a size that is given twice."""
    if arguments.nodes != 1:
        raise BadInput(f"{arguments.nodes} nodes", "--nodes", f"1, {ONE_DEVICE}")
    options = options_of(arguments.options)
    for name in ("batch", "sequence"):
        given, there = getattr(arguments, name), getattr(options, name)
        if given is None:
            continue
        if there not in (None, given):
            raise BadInput(f"{given} and {name} {there} of --options", f"--{name}", "one of them")
        options = knobs.load(WorkloadOptions, {**asdict(options), name: given}, "options")
    workload = Workload(arguments.model, arguments.format, options)
    return Ask(workload, hardware_of(arguments.hardware), arguments.goal)


def hardware_of(text: str) -> str | Mapping[str, Any]:
    """A sheet's name, or an object as RunSpecs have it."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    found = jsonio.loads(text, "--hardware")
    if not isinstance(found, dict):
        raise BadInput(f"{found!r:.80} is not a device", "--hardware", ONE_DEVICE)
    return found


def call(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    advice = advise(ask_of(arguments), progress_of(arguments))
    seconds = time.perf_counter() - began
    if arguments.json:
        write_json({**advice.to_json(), "answer": sentences(advice), "seconds": round(seconds, 3)})
    else:
        print("\n".join(sentences(advice)))
        print(f"\n{rows_table(advice)}\n\nin {human(seconds, 's')}")
    advice.refuse_misfits()


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
