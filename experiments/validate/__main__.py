"""``python -m experiments.validate --device cpu|cuda --out FILE [--family parallel]``: predicted against
measured.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from experiments.commands.output import progress_of, progress_option, table, write_json
from experiments.core.units import human
from experiments.validate.cells import EVERYTHING, SINGLE_DEVICE, Chosen
from experiments.validate.evidence import FAMILIES, validate

UNITS = {
    "peak_memory": "bytes",
    "peak_memory_per_device": "bytes",
    "communication_bytes": "bytes",
    "ideal_share": "fraction",
    "speedup": "ratio",
    "peak_kv_tokens": "tokens",
}


def main(arguments: list[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    if chosen.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    keep = functools.partial(write_json, path=chosen.out)
    evidence = validate(chosen.device, progress_of(chosen), chosen.family, choose_cells(chosen), keep)
    keep(evidence)
    print(table(("model", "policy", "status", "metric", "predicted", "measured", "error"), rows(evidence)))
    for name, summary in evidence["errors"].items():
        print(
            f"{name}: median error {summary['median']:.1%}, largest {summary['largest']:.1%} over "
            f"{summary['cells']} cells"
        )
    print(f"{evidence['device']}, {evidence['seconds']:.0f} s, written to {chosen.out}")
    return 1 if any(cell["status"] in {"failed", "rejected"} for cell in evidence["cells"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.validate", description=__doc__)
    parser.add_argument("--device", choices=tuple(SINGLE_DEVICE), required=True)
    parser.add_argument("--out", type=Path, required=True, help="evidence file")
    parser.add_argument(
        "--family",
        nargs="+",
        choices=tuple(FAMILIES),
        default=["memory", "compilation"],
        help="of these families",
    )
    parser.add_argument("--models", nargs="+", help="of these models of the grid")
    parser.add_argument("--policies", nargs="+", help="of these policies")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no cell after so many")
    parser.add_argument(
        "--turns", type=count_of, default=EVERYTHING.turns, help="times that a live serving run happens"
    )
    progress_option(parser)
    return parser


def count_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def choose_cells(chosen: argparse.Namespace) -> Chosen:
    models, policies = (frozenset(names) if names else None for names in (chosen.models, chosen.policies))
    return Chosen(models, policies, time.perf_counter() + chosen.seconds, chosen.turns)


def rows(evidence: dict[str, Any]) -> list[tuple[str, ...]]:
    out = []
    for cell in evidence["cells"]:
        for name, figure in cell["figures"].items() or [("-", {})]:
            unit = UNITS.get(name, "s")
            shown = [
                human(figure[side], unit) if figure.get(side) is not None else "-"
                for side in ("predicted", "measured")
            ]
            error = f"{figure['error']:+.1%}" if figure.get("error") is not None else "-"
            out.append((cell["model"], cell["policy"], cell["status"], name, *shown, error))
    return out


if __name__ == "__main__":
    sys.exit(main())
