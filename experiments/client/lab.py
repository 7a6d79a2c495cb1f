"""The lab as an object: submit runs and follow them, read results, files, and own runs."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.client.own_run import OwnRun
from experiments.client.server import Away, LabError, Server

ENDED = ("succeeded", "infeasible", "failed", "cancelled", "rejected")
PER_PAGE = 1000
#: Columns of a run in a table of results; knobs and figures follow.
COLUMNS = ("id", "family", "policy", "hardware", "mode", "seed", "state", "queued_at")


class Lab:
    """A team's lab.

    Address, token and project that are not given come from the environment (LAB_SERVER, LAB_TOKEN,
    LAB_PROJECT); without an address runs are logged on this host's disk alone.
    """

    def __init__(
        self, server: str = "", token: str = "", project: str = "", folder: str | Path | None = None
    ) -> None:
        url = server or os.environ.get("LAB_SERVER", "")
        self._server = Server.at(url, token, project) if url else None
        self.folder = Path(folder) if folder else None

    @property
    def server(self) -> Server:
        if self._server is None:
            raise LabError("no server is known", "Lab('https://lab.example.org') or export LAB_SERVER=...")
        return self._server

    def log(self, name: str, params: Mapping[str, Any] | None = None, **more: Any) -> OwnRun:
        """A run of one's own program, for ``with`` or as a decorator.

        ``more``: ``experiment`` (runs of one are compared; the name where not given), ``tags``, ``seed``,
        ``hardware`` (asked of torch where not given).
        """
        return OwnRun(self._server, name, params, folder=self.folder, **more)

    def submit(self, *specs: Mapping[str, Any], name: str = "") -> list[dict[str, Any]]:
        """Submit RunSpecs as one experiment, once however the network is; its runs in their order."""
        made = self.server.post_once("/api/v1/experiments", {"name": name, "runs": list(specs)})
        return list(made["runs"])

    def run(self, run: str) -> dict[str, Any]:
        """A run with its outcome, once it has one."""
        found: dict[str, Any] = self.server.get(f"/api/v1/runs/{run}")
        return found

    def wait(self, runs: Iterable[Mapping[str, Any]], every: float = 1.0, show: bool = True) -> list[Any]:
        """Follow runs until all have ended; they with their outcomes."""
        wanted = [str(run["id"]) for run in runs]
        found = {run: self.run(run) for run in wanted}
        while moving := [run for run in wanted if found[run]["state"] not in ENDED]:
            if show:
                _show(list(found.values()))
            time.sleep(every)
            found |= {run: self.run(run) for run in moving}
        if show:
            _show(list(found.values()), end="\n")
        return [found[run] for run in wanted]

    def runs(
        self, query: str = "", limit: int | None = None, details: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Runs of the project, the newest first, in the search language of the page of all runs.

        ``details``: with what each was asked for, its tags and its note.
        """
        after, left = None, limit
        while left is None or left > 0:
            size = min(PER_PAGE, left or PER_PAGE)
            asked = {"query": query or None, "after": after, "limit": size, "details": details or None}
            page = self.server.get("/api/v1/runs", **asked, project=self.server.project or None)
            yield from page["runs"]
            left = None if left is None else left - len(page["runs"])
            after = page["next"]
            if after is None:
                return

    def count(self, query: str = "") -> int:
        """How many runs there are."""
        asked = {"query": f"{query} group by state: count", "project": self.server.project or None}
        groups = self.server.get("/api/v1/groups", **asked)["groups"]
        return sum(int(group["values"]["count"]) for group in groups)

    def outcome(self, run: str) -> dict[str, Any]:
        """The Outcome of a policy's run as ``python -m experiments run`` prints it."""
        found: dict[str, Any] = self.server.get(f"/api/v1/runs/{run}/outcome")
        return found

    def results(self, query: str = "", limit: int | None = None) -> Any:
        """Runs as a table of figures: a pandas DataFrame where pandas is installed, else a list of rows."""
        return _as_table([_row(run) for run in self.runs(query, limit)])

    def groups(self, query: str) -> Any:
        """Groups of runs as such a table, the 200 largest: ``group by policy: mean(step_time), count``."""
        found = self.server.get("/api/v1/groups", query=query, project=self.server.project or None)
        return _as_table([{**group["keys"], **group["values"]} for group in found["groups"]])

    def points(self, run: str, name: str) -> dict[str, list[Any]]:
        """Every point of a figure of a logged run: ``steps``, ``moments`` (s since 1970) and ``values``."""
        found = self.server.get(f"/api/v1/logs/{run}/points", name=name)
        return {
            "steps": found["steps"],
            "moments": found["moments"],
            "values": [float(value) for value in found["values"]],
        }

    def tables(self, run: str) -> list[dict[str, Any]]:
        """The tables of a logged run: ``name``, ``step``, ``columns`` and ``rows`` of each."""
        found: list[dict[str, Any]] = self.server.get(f"/api/v1/logs/{run}/tables")["tables"]
        return found

    def images(self, run: str) -> list[dict[str, Any]]:
        """The pictures of a logged run: ``id``, ``name``, ``step``, ``kind`` and size of each."""
        found: list[dict[str, Any]] = self.server.get(f"/api/v1/logs/{run}/images")["images"]
        return found

    def image(self, run: str, image: int) -> bytes:
        """The bytes of a picture of a logged run."""
        return self.server.download(f"/api/v1/logs/{run}/images/{image}")

    def files(self, run: str) -> list[dict[str, Any]]:
        """The files of a logged run that are not in the trash: ``name``, ``sha256`` and ``size`` of each."""
        found = self.server.get(f"/api/v1/logs/{run}/files")["files"]
        return [one for one in found if one["sha256"] and not one["trashed"]]

    def difference(self, run: str) -> str:
        """What the checkout of a logged run had that its revision has not, as ``git diff`` prints it."""
        return self.server.download(f"/api/v1/logs/{run}/diff").decode()

    def tag(self, runs: Iterable[str], name: str, take: str = "on") -> int:
        """Put the tag on runs, or take it ``off``; how many they are."""
        told = {"name": name, "runs": [str(run) for run in runs], "take": take}
        return int(self.server.post("/api/v1/tags", told, in_project=False)["runs"])

    def note(self, run: str, text: str | None = None) -> str:
        """The note on a run, in Markdown; with ``text`` that from now on."""
        path = f"/api/v1/runs/{run}/note"
        found = self.server.get(path) if text is None else self.server.post(path, {"text": text}, False)
        return str(found["text"])

    def comment(self, run: str, text: str) -> None:
        """Say something about a run; members whose names stand behind an @ are told."""
        self.server.post(f"/api/v1/runs/{run}/comments", {"text": text}, in_project=False)

    def trash(self, runs: Iterable[str]) -> int:
        """Put runs that have ended into the trash together; what ``restore`` takes them back by."""
        told = {"runs": [str(run) for run in runs]}
        return int(self.server.post("/api/v1/trash", told, in_project=False)["trash"])

    def restore(self, trash: int) -> int:
        """Take the runs back that went into the trash together; how many."""
        return int(self.server.post(f"/api/v1/trash/{trash}/restore", {}, in_project=False)["runs"])

    def report(self, report: int) -> dict[str, Any]:
        """A report with what its searches find: ``title``, ``text``, ``document`` and more."""
        found: dict[str, Any] = self.server.get(f"/api/v1/reports/{report}")
        return found

    def upload(self, path: str | Path, wait: bool = True) -> dict[str, Any]:
        """Upload a model or trace; with ``wait`` until the lab has said what it is."""
        made: dict[str, Any] = self.server.upload("/api/v1/artifacts", Path(path))
        while wait and made["state"] not in ("ready", "rejected"):
            time.sleep(1.0)
            made = self.server.get(f"/api/v1/artifacts/{made['id']}")
        return made

    def download(self, sha256: str, path: str | Path) -> Path:
        """The bytes of a file of the team, by their hash, into ``path``."""
        target = Path(path)
        self.server.download_to(f"/api/v1/files/{sha256}", target)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise Away(f"the file {sha256:.12} did not come whole", "try again in a moment")
        return target


def _row(run: Mapping[str, Any]) -> dict[str, Any]:
    figures = {name: told["value"] for name, told in run["metrics"].items()}
    return {**{name: run[name] for name in COLUMNS}, **figures}


def _as_table(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _show(runs: Sequence[Mapping[str, Any]], end: str = "") -> None:
    """A bar of all runs on standard error."""
    done = sum(run["state"] in ENDED for run in runs)
    fraction = sum(1.0 if run["state"] in ENDED else run["progress"] for run in runs) / max(len(runs), 1)
    filled = round(24 * fraction)
    bar = "█" * filled + "·" * (24 - filled)
    sys.stderr.write(f"\r{bar} {fraction:4.0%} {done} of {len(runs)} runs ended{end}")
    sys.stderr.flush()
