"""``calibrate FILE --ranks N``: the link that explains measured collectives, ready to be put into
a cluster.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from experiments.commands.output import json_option, table, write_json
from experiments.core.errors import BadInput
from experiments.core.units import human
from experiments.hardware.measured_collectives import fit, read_measurements


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser("calibrate", help="a link's latency and bandwidth from measured collectives")
    parser.add_argument("file", type=Path, help="nccl-tests output, or JSON of megabytes and seconds")
    parser.add_argument("--ranks", type=int, required=True, help="devices that took part")
    json_option(parser)
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> None:
    if arguments.ranks < 2:
        raise BadInput(f"{arguments.ranks} ranks", "--ranks", "at least 2")
    rows = read_measurements(arguments.file)
    kinds = dict.fromkeys(row.kind for row in rows)
    fits = {kind: fit([row for row in rows if row.kind == kind], arguments.ranks) for kind in kinds}
    fits["all"] = fit(rows, arguments.ranks)
    if arguments.json:
        return write_json(
            {"measurements": len(rows), "fits": {name: asdict(one) for name, one in fits.items()}}
        )
    lines = [
        (
            name,
            human(f.latency, "s"),
            human(f.bandwidth, "bytes/s"),
            f"{f.median_error:.1%}",
            f"{f.largest_error:.1%}",
        )
        for name, f in fits.items()
    ]
    print(table(("collective", "latency", "bandwidth", "median error", "largest"), lines))
    link = {"bandwidth": fits["all"].bandwidth, "latency": fits["all"].latency}
    print(f'in a cluster, as "node_link" or "network": {json.dumps(link)}')
    return None
