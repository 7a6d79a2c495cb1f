"""``communication SPEC.json``: what ranks of a plan hand over, by kind of collective, simulated and counted.

Counted by the runners themselves on fake tensors under torch's fake process group: plans for thousands of
ranks need one core and no memory.
"""

from __future__ import annotations

import argparse

from experiments.commands.output import json_option, progress_of, progress_option, table, write_json
from experiments.commands.run import read_text
from experiments.core import jsonio, registry
from experiments.core.completion import complete
from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.core.units import human


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "communication", help="bytes by collective of a parallel plan, simulated and counted"
    )
    parser.add_argument("spec", help="RunSpec JSON file of a simulated parallel run, or - for stdin")
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[0], help="devices of the plan to count (default: 0)"
    )
    json_option(parser)
    progress_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    """Exit code 1 when a counted figure differs from the simulated one."""
    spec, policy = complete(load_spec(jsonio.loads(read_text(arguments.spec), arguments.spec)))
    if spec.family != "parallel":
        raise BadInput(f"a {spec.family} run", arguments.spec, "a parallel one")
    experiment = registry.load_module("parallel", "experiment")
    found = experiment.communication(spec, policy, arguments.ranks, progress_of(arguments))
    if arguments.json:
        write_json([row.to_json() for row in found])
    else:
        lines = [
            (
                str(row.rank),
                kind,
                human(simulated, "bytes"),
                human(row.padding.get(kind, 0.0), "bytes"),
                human(counted, "bytes"),
                f"{counted - simulated:+,.0f}",
            )
            for row in found
            for kind, simulated, counted in row.kinds()
        ]
        print(table(("rank", "kind", "simulated", "of it padding", "counted", "difference"), lines))
    return 0 if all(row.agrees for row in found) else 1
