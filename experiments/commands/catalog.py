"""``list``, ``formats`` and ``hardware``: what there is."""

from __future__ import annotations

import argparse
from typing import Any

from experiments import hardware
from experiments.commands.output import json_option, print_broken, table, write_json
from experiments.core import registry
from experiments.core.policy import FAMILIES
from experiments.core.units import human
from experiments.readers.base import readers


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    policies = verbs.add_parser("list", help="all policies: family, modes, knobs, paper")
    policies.add_argument("--family", choices=FAMILIES)
    formats = verbs.add_parser("formats", help="all formats read")
    sheets = verbs.add_parser("hardware", help="all spec sheets with sources")
    for parser, call in ((policies, list_policies), (formats, list_formats), (sheets, list_hardware)):
        json_option(parser)
        parser.set_defaults(call=call)


def list_policies(arguments: argparse.Namespace) -> None:
    print_broken(arguments.family)
    chosen = [p for p in registry.all_policies() if arguments.family in (None, p.family)]
    rows = [registry.describe(policy) for policy in chosen]
    if arguments.json:
        return write_json(rows)
    cells = [
        (r["name"], r["family"], "+".join(r["modes"]), r["paper"] or "-", r["summary"][:70]) for r in rows
    ]
    print(table(("policy", "family", "modes", "paper", "what"), cells))
    return None


def list_formats(arguments: argparse.Namespace) -> None:
    rows = [{"format": r.format, "kind": r.kind, "describe": r.describe} for r in readers().values()]
    if arguments.json:
        return write_json(rows)
    print(table(("format", "gives", "what"), [list(row.values()) for row in rows]))
    return None


def list_hardware(arguments: argparse.Namespace) -> None:
    rows = hardware.catalog()
    if arguments.json:
        return write_json(rows)
    print(table(("name", "kind", "memory", "source"), [_hardware_cells(row) for row in rows]))
    return None


def _hardware_cells(row: dict[str, Any]) -> tuple[str, ...]:
    memory = row.get("memory_bytes")
    return row["name"], row["kind"], human(memory, "bytes") if memory else "", row["source"]
