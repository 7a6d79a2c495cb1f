"""`./lab run`, `./lab import` and `./lab sync`: hand specs, outcomes and logs to a server over its REST API.

The team's token comes from the environment variable LAB_TOKEN, so that it stands in no shell history;
LAB_PROJECT names the project where the team has several.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.client.server import Away, Server
from labtools.problems import Problem
from labtools.progress import ProgressLine

ASK_EVERY = 1.0  # seconds
#: For which a batch waits for a server that is away (seconds).
PATIENCE = 180.0
ENDED = ("succeeded", "infeasible", "failed", "cancelled", "rejected")
# The exit codes of `python -m experiments run`, for a run that was carried out elsewhere.
EXIT_CODES = {"succeeded": 0, "infeasible": 3, "rejected": 2}


def run(spec_file: Path, url: str) -> int:
    """Submit the spec, follow the run, print its outcome; exit code 0 where it succeeded, 3 where it does not
    fit.
    """
    server = Server.at(url)
    submitted = server.post("/api/v1/runs", read_json(spec_file))
    line = ProgressLine()
    while (current := server.get(f"/api/v1/runs/{submitted['id']}"))["state"] not in ENDED:
        line.show(describe(current))
        time.sleep(ASK_EVERY)
    line.close(describe(current))
    print(json.dumps(current.get("outcome"), indent=1))
    return EXIT_CODES.get(current["state"], 1)


def import_outcomes(files: Sequence[Path], url: str) -> int:
    """Upload outcomes that were computed where the server's database cannot be reached.

    What was handed in is written down next to each file: a batch that was cut goes on where it was when the
    command is said again. An outcome that comes twice is one run.
    """
    server = Server.at(url)
    for file in files:
        receipt = file.with_name(f"{file.name}.stored")
        content = read_json(file)
        about = f"{url.rstrip('/')} {hashlib.sha256(file.read_bytes()).hexdigest()} "
        known = receipt.read_text() if receipt.exists() else ""
        if not known.startswith(about):
            receipt.write_text(f"{about}{_hand_in(server, content)}\n")
        print(f"{file}: stored as run {receipt.read_text().split()[-1]}", flush=True)
    return 0


def _hand_in(server: Server, outcome: Mapping[str, Any]) -> str:
    """The run's id. A server that is away is asked again for some minutes."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return str(server.post("/api/v1/outcomes", outcome)["id"])
        except Away:
            if time.monotonic() > give_up:
                raise
            time.sleep(ASK_EVERY)


def sync(folder: Path | None, url: str) -> int:
    """Send the logs of own runs that this host could not send: its programs have ended, or died.

    What is sent twice is stored once; a log goes from the disk when the server has all of it.
    """
    from experiments.client.log_file import default_folder
    from experiments.client.sender import send_left

    place = folder or default_folder()
    fates = send_left(place, Server.at(url))
    for run_id, fate in fates.items():
        print(f"{run_id}: {fate}")
    print(f"{sum(fate == 'sent' for fate in fates.values())} of {len(fates)} logs in {place} sent")
    return 0 if all(fate == "sent" for fate in fates.values()) else 1


def describe(current: Mapping[str, Any]) -> str:
    progress = current.get("progress")
    share = f" {progress:.0%}" if isinstance(progress, (int, float)) else ""
    return f"run {current['id']}: {current['state']}{share}"


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise Problem(f"there is no file {path}", "give the path of a JSON file") from error
    except ValueError as error:
        raise Problem(
            f"{path} is not JSON: {error}", "make it with: python -m experiments run --out"
        ) from error
    if not isinstance(content, dict):
        raise Problem(f"{path} does not hold a JSON object", "see the contracts in docs/operations.md")
    return content
