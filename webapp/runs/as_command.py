"""A new experiment as what one would type: a call of the API, and runs without the server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import urlencode

from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact
from webapp.runs.grid import Trial
from webapp.runs.node_lists import named_list
from webapp.runs.references import NAMING, find_artifact
from webapp.runs.specs import spec_of

TOKEN = '-H "Authorization: Bearer $LAB_TOKEN"'


@dataclass(frozen=True)
class Commands:
    """The same runs twice: ``api`` submits them as one experiment, ``local`` carries them out one by one."""

    api: str
    local: str


def commands_of(project: Project, name: str, trials: Sequence[Trial], server: str) -> Commands:
    """Commands for a shell that work as they are copied, with a token of the team in ``LAB_TOKEN``."""
    needs = next((trial.needs for trial in trials if trial.needs), "")
    query = {"project": project.slug, **({"needs": needs} if needs else {})}
    url = shlex.quote(f"{server}/api/v1/experiments?{urlencode(query)}")
    specs = ",\n".join(json.dumps(spec_of(trial)) for trial in trials)
    body = f'{{"name": {json.dumps(name)}, "runs": [\n{specs}\n]}}'
    api = f"curl -sS {TOKEN} --data-binary @- {url} <<'RUNS'\n{body}\nRUNS"
    return Commands(api, _without_server(project, trials, server))


def _without_server(project: Project, trials: Sequence[Trial], server: str) -> str:
    """Uploads are fetched by their hash first, and called by their place in the folder."""
    files = _places(_artifacts(project, trials))
    fetched = [
        f"curl -sS {TOKEN} -o {shlex.quote(place)} {shlex.quote(f'{server}/api/v1/files/{one.blob_id}')}"
        for one, place in files.items()
        if one.blob_id
    ]
    names = {f"artifact:{one.pk}": place for one, place in files.items()}
    specs = [json.dumps(_renamed(spec_of(trial), names)) for trial in trials]
    if len(specs) == 1:
        run = f"python -m experiments run - <<'RUN'\n{specs[0]}\nRUN"
    else:
        each = 'while read -r run; do python -m experiments run - <<<"$run"; done'
        run = "\n".join([f"{each} <<'RUNS'", *specs, "RUNS"])
    return "\n".join([*fetched, run])


def _artifacts(project: Project, trials: Iterable[Trial]) -> list[Artifact]:
    """The workloads, and the other files that their options name."""
    found = {trial.artifact.pk: trial.artifact for trial in trials}
    named = {str(trial.spec["workload"]["options"].get(option)) for trial in trials for option in NAMING}
    named |= {str(named_list(trial.spec["hardware"])) for trial in trials}
    for reference in sorted(named):
        other = find_artifact(Artifact.objects.of(project), reference)
        if other is not None:
            found[other.pk] = other
    return list(found.values())


def _places(artifacts: Sequence[Artifact]) -> dict[Artifact, str]:
    """What each is called without the server: what has no file by its name, a file by one of its own."""
    names = [PurePath(one.name).name for one in artifacts]
    return {
        one: one.fileless or (f"./{name}" if names.count(name) == 1 else f"./{one.pk}-{name}")
        for one, name in zip(artifacts, names, strict=True)
    }


def _renamed(spec: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    workload = spec["workload"]
    given = workload["options"]
    options = {key: names.get(value, value) if key in NAMING else value for key, value in given.items()}
    nodes = named_list(spec["hardware"]) or ""
    where = {"hardware": {"nodes": names[nodes]}} if nodes in names else {}
    placed = {**workload, "source": names[workload["source"]], "options": options}
    return {**spec, **where, "workload": placed}
