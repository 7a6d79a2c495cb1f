"""How many milliseconds of processor time each main page takes, next to the 200 that it may.

    python -m benchmarks.pages [--times 20] [--profile systems]

A fresh lab in a temporary folder with all shipped evidence, the demo's experiments and its models read, asked
in this process; warm, as every request but a server's first is. What Postgres does meanwhile is not counted:
queries are. Other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labtools.testing import scratch_folder
from workers.services import temporary_servers

#: Milliseconds that a page may take.
MARK = 200.0
#: Pages below the project, by what they are called here.
PAGES = {
    "home": "",
    "systems": "systems/",
    "system": "systems/memory/vdnn-all/",
    "tables": "tables/",
    "table": "tables/parallel-published/",
    "hosts": "hosts/",
    "validation": "hosts/validation",
    "experiments": "experiments/",
    "new experiment": "experiments/new",
    "nightly": "nightly/",
    "artifacts": "artifacts/",
    "advice": "advise/",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="requests of each page")
    parser.add_argument("--profile", choices=PAGES, help="where one page's time goes")
    arguments = parser.parse_args()
    with scratch_folder() as folder, temporary_servers(folder) as servers:
        os.environ |= {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        os.environ |= {"LAB_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "webapp.settings.test"}
        client, root = set_up(folder)
        if arguments.profile:
            _profile(client, root + PAGES[arguments.profile])
            return
        rows = [_measure(client, name, root + path, arguments.times) for name, path in PAGES.items()]
    slow = [name for name, median in rows if median > MARK]
    print(f"{len(rows) - len(slow)} of {len(rows)} within {MARK:g} ms", *slow)


def set_up(folder: Path) -> tuple[Any, str]:
    """Return a signed-in client of a fresh lab, and the address of its project."""
    import django

    (folder / "var").mkdir(exist_ok=True)
    django.setup()
    from django.core.management import call_command
    from django.test import Client

    from webapp.accounts.models import Project, User
    from webapp.artifacts.models import Artifact

    for command in (["migrate", "--no-input", "-v0"], ["import_evidence"], ["bootstrap_demo"]):
        call_command(*command, stdout=(folder / "said.txt").open("a"))
    Artifact.objects.exclude(zoo="").update(state=Artifact.State.READY, kind="model")  # as workers do
    client, project = Client(), Project.objects.get()
    client.force_login(User.objects.get(), "django.contrib.auth.backends.ModelBackend")
    return client, f"/t/{project.team.slug}/{project.slug}/"


def _measure(client: Any, name: str, url: str, times: int) -> tuple[str, float]:
    """Print what a page takes; return its median in milliseconds."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        answer = client.get(url)
    assert answer.status_code == 200, (url, answer.status_code)
    asked, size = len(queries), len(answer.content) / 1024  # the next request forgets the queries
    found = _milliseconds(client, url, times)
    median = statistics.median(found)
    print(
        f"{name:16} {median:6.0f} ms, most {max(found):4.0f}  {asked:3} queries  {size:6.0f} KiB", flush=True
    )
    return name, median


def _milliseconds(client: Any, url: str, times: int) -> Sequence[float]:
    client.get(url)
    found = []
    for _ in range(times):
        began = time.process_time()
        client.get(url)
        found.append(1e3 * (time.process_time() - began))
    return found


def _profile(client: Any, url: str) -> None:
    client.get(url)
    profile = cProfile.Profile()
    profile.runcall(client.get, url)
    pstats.Stats(profile).sort_stats("cumulative").print_stats(70)


if __name__ == "__main__":
    main()
