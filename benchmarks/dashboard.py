"""How fast the dashboard answers from a history of 10,000 and of 1,000,000 runs, next to what it may take.

    python -m benchmarks.dashboard [--runs 10000] [--times 20] [--folder KEPT] [--only home] [--peer PYTHON]

The lab of ``benchmarks.seeding`` in a database of its own, asked in this process through all of Django: the
middle and the 95th of a hundred, the processor time of Django and of Postgres, queries and bytes, and the
most rows of the tables that grow with the history that one query looks at (by EXPLAIN). It ends with an error
where a list looks at more than its page needs, which no clock decides. With ``--folder`` the seeded lab is
kept there and found again. ``--peer`` names a Python that has MLflow: it is asked the same behind ours, with
a database of its own on the same Postgres (``benchmarks/dashboard_peer.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import orjson
import psutil

from benchmarks.plans_of_queries import rows_looked_at
from benchmarks.seeding import NAMES, PER_EXPERIMENT, WIDE, Seeded, seed
from experiments.core.heap import freeze_for_good
from labtools.testing import scratch_folder
from workers.services import temporary_servers

#: Histories of at least so many runs are held to the goals of a million.
MANY = 100_000
DESCRIPTION, COMPARED, FULL_RUNS = "seeded.json", 200, 1_000
#: A few in ten thousand.
RARE = "step_time < 0.0005 and param.k03 > 10"
#: Points of a request, and of a figure that is read.
BATCH, SERIES = 1_000, 12_000
#: Rows of a run of one's own and of its few series.
OF_ONE_RUN = 10
PEER = Path(__file__).with_name("dashboard_peer.py")


@dataclass(frozen=True)
class Case:
    """What is asked (the answer's bytes), and how many milliseconds it may take with 10,000 runs and with a
    million.

    ``rows``: of the large tables, which one query may look at, however long the history; ``None`` where the
    answer is about all of them.
    """

    ask: Callable[[], int]
    goal: float
    goal_of_million: float
    rows: int | None
    times: int | None = None


@dataclass(frozen=True)
class Taken:
    """Milliseconds: middle and 95th of a hundred; processor time of Django and of Postgres together.

    ``rows``: of the large tables, by table, which the query looks at that looks at the most.
    """

    p50: float
    p95: float
    cpu: float
    queries: int
    kib: float
    rows: Counter[str]


class Browser:
    """A signed-in client and a team's token; ``size`` of an answer, which must be whole."""

    def __init__(self, seeded: Seeded) -> None:
        from django.test import Client

        from webapp.accounts.models import Role, Team, User
        from webapp.api.services import make_token

        user = User.objects.get(pk=seeded.user)
        _, secret = make_token(Team.objects.get(slug=seeded.team), user, "benchmark", Role.MEMBER)
        self.page, self.api = Client(), Client(headers={"Authorization": f"Bearer {secret}"})
        self.page.force_login(user, "django.contrib.auth.backends.ModelBackend")
        self.root = f"/t/{seeded.team}/{seeded.project}/"

    def size(self, path: str, query: Mapping[str, Any] | None = None) -> int:
        answer = self.page.get(self.root + path, query, follow=True)
        assert answer.status_code == 200, (path, answer.status_code)
        return len(answer.getvalue())

    def csv(self, path: str, rows: int, **which: Any) -> int:
        answer = b"".join(self.page.get(self.root + path, {"export": "csv", **which}))
        assert answer.count(b"\n") == rows + 1, (answer.count(b"\n"), rows)
        return len(answer)

    def full_runs(self, **which: str) -> int:
        """A thousand runs with their metrics, newest first."""
        answer = self.api.get("/api/v1/runs", {"limit": FULL_RUNS, **which})
        found = orjson.loads(answer.content)["runs"]
        assert len(found) == FULL_RUNS and len(found[0]["metrics"]) == len(NAMES), answer.content[:300]
        return len(answer.content)


class Program:
    """Logs a run of its own over the API, and reads what it logged."""

    def __init__(self, browser: Browser) -> None:
        self.api, self.path = browser.api, f"/api/v1/logs/{uuid4()}"
        self.offset, self.step = 0, 0
        self._send(b'{"begin":{"name":"benchmark","started":1790000000}}\n')
        for _ in range(SERIES // BATCH):
            self.log(BATCH, "loss")

    def log(self, points: int, name: str = "other") -> int:
        """Points one after the other in one request."""
        rows = range(self.step, self.step + points)
        self.step += points
        return self._send(b"".join(b'[%d,1790000000.5,{"%s":0.25}]\n' % (row, name.encode()) for row in rows))

    def _send(self, body: bytes) -> int:
        answer = self.api.post(f"{self.path}?offset={self.offset}", body, content_type="application/x-ndjson")
        assert answer.status_code == 200, answer.content[:300]
        self.offset += len(body)
        return len(answer.content)

    def series(self) -> int:
        answer = self.api.get(f"{self.path}/points", {"name": "loss"})
        assert len(orjson.loads(answer.content)["steps"]) == SERIES, answer.content[:300]
        return len(answer.content)


def cases(browser: Browser, seeded: Seeded) -> dict[str, Case]:
    from webapp.history.boards import MOST_RUNS
    from webapp.history.table import MOST_COUNTED, PER_PAGE
    from webapp.runs.models import Run

    Run.everything.filter(kind=Run.Kind.LOGGED).delete()  # of earlier benchmarks of a kept lab
    compared = {"run": [str(run) for run in seeded.some[:COMPARED]]}
    program = Program(browser)
    condition = "(step_time < 0.5 or peak_memory < 1 GB) and param.k03 > 50"
    searched = {"q": f"{condition} group by policy: min(step_time), count"}
    # Rows that a page needs: what it counts and the figures that it shows. Of runs of which every second one
    # is found, two; and two figures of each, where either may hold. Of boards, the newest answers as they are
    # found and as they are read, with a figure each.
    figures, counted = len(NAMES), MOST_COUNTED + 1
    listed, found, full = counted + PER_PAGE * figures, 6 * counted, FULL_RUNS * (2 + figures)
    return {
        "home": Case(lambda: browser.size(""), 60, 100, listed),
        "list of experiments": Case(lambda: browser.size("experiments/"), 60, 100, listed),
        "live experiment": Case(
            lambda: browser.size(f"experiments/{seeded.live}/"), 60, 100, PER_EXPERIMENT * (1 + figures)
        ),
        "1,000 full runs, API": Case(lambda: browser.full_runs(state="succeeded"), 150, 150, full),
        "1,000 runs by a metric": Case(lambda: browser.full_runs(query="step_time < 0.5"), 150, 150, full),
        f"CSV of {WIDE:,} runs": Case(
            lambda: browser.csv(f"experiments/{seeded.wide}/", WIDE), 5_000, 5_000, WIDE * figures, times=3
        ),
        f"CSV of {WIDE:,} with figures": Case(
            lambda: browser.csv("all-runs/", WIDE, column=NAMES), 5_000, 5_000, 2 * WIDE, times=3
        ),
        "all runs": Case(lambda: browser.size("all-runs/"), 60, 100, listed),
        "runs in a metric's order": Case(
            lambda: browser.size("all-runs/", {"q": "order by step_time"}), 100, 100, listed
        ),
        "a rare search": Case(lambda: browser.size("all-runs/", {"q": RARE}), 300, 300, listed, times=5),
        "search and group": Case(lambda: browser.size("all-runs/", searched), 300, 300, found, times=5),
        "its groups": Case(
            lambda: browser.size("all-runs/", {**searched, "groups": "now"}), 300, 300, None, times=5
        ),
        "leaderboards": Case(
            lambda: browser.size("all-runs/leaderboards"), 1_000, 1_000, 3 * MOST_RUNS, times=5
        ),
        "a logged point": Case(lambda: program.log(1), 5, 5, OF_ONE_RUN),
        f"{BATCH:,} logged points": Case(lambda: program.log(BATCH), 25, 25, OF_ONE_RUN),
        f"series of {SERIES:,} points": Case(program.series, 50, 50, OF_ONE_RUN),
        f"compare {COMPARED} runs": Case(
            lambda: browser.size("compare/", compared), 500, 500, COMPARED * (1 + figures), times=5
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=20, help="requests of each address")
    parser.add_argument("--folder", type=Path, help="where the seeded lab is kept")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--peer", metavar="PYTHON", help="one that has MLflow")
    arguments = parser.parse_args()
    if arguments.peer and not shutil.which(arguments.peer):
        parser.error(f"there is no {arguments.peer}")
    with lab(arguments.folder, arguments.runs) as seeded:
        found = cases(Browser(seeded), seeded)
        chosen = {name: case for name, case in found.items() if arguments.only in name}
        told = [report(name, case, arguments) for name, case in chosen.items()]
        if arguments.peer:
            _ask_peer(arguments)
    late = [name for name, (is_in_time, _) in zip(chosen, told, strict=True) if not is_in_time]
    astray = [name for name, (_, is_narrow) in zip(chosen, told, strict=True) if not is_narrow]
    print(f"{len(chosen) - len(late)} of {len(chosen)} within their goals; missed:", *(late or "-"))
    if astray:
        raise SystemExit(f"looks at more rows than the page needs: {', '.join(astray)}")


@contextmanager
def lab(kept: Path | None, runs: int) -> Iterator[Seeded]:
    """Django on the servers of a lab with that many runs, seeded where ``kept`` has none yet."""
    with scratch_folder() as scratch:
        folder = scratch if kept is None else kept.resolve()
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with temporary_servers(folder) as servers:
            os.environ |= {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
            os.environ |= {"LAB_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "webapp.settings.test"}
            (folder / "var").mkdir(exist_ok=True)
            yield _seeded(folder, runs)


def _seeded(folder: Path, runs: int) -> Seeded:
    import django

    django.setup()
    from django.core.management import call_command

    began = time.perf_counter()
    call_command("migrate", "--no-input", "-v0")
    print(f"migrations: {time.perf_counter() - began:.1f} s", flush=True)
    description = folder / DESCRIPTION
    if not description.exists():
        began = time.perf_counter()
        seeded = asdict(seed(runs))
        print(f"{runs:,} runs and {WIDE:,} of one experiment seeded: {time.perf_counter() - began:.0f} s")
        description.write_text(json.dumps(seeded, default=str))
    _build_segments()
    told = json.loads(description.read_text())
    ids = {name: UUID(told[name]) for name in ("live", "wide")}
    return Seeded(**told | ids | {"some": tuple(map(UUID, told["some"]))})


def _build_segments() -> None:
    """What the periodic task does until nothing is left to do."""
    from django.db import connection
    from django.utils import timezone

    from webapp.history.models import Segment
    from webapp.history.segments import keeping

    began, used = time.perf_counter(), time.process_time()
    keeping.go_on(timezone.now())
    while Segment.objects.filter(size=None).exists():
        keeping.go_on(timezone.now())
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE history_segment, history_segmentcolumn, history_segmentmark")
        cursor.execute("SELECT pg_total_relation_size('history_segmentcolumn') / 1e6")
        size = float(cursor.fetchone()[0])
    print(
        f"{Segment.objects.count()} segments, {size:.0f} MB: {time.perf_counter() - began:.0f} s,"
        f" {time.process_time() - used:.0f} s of processor here",
        flush=True,
    )


def report(name: str, case: Case, arguments: argparse.Namespace) -> tuple[bool, bool]:
    """Print what it takes; return whether that is within its goal, and no more rows than it needs."""
    goal = case.goal_of_million if arguments.runs >= MANY else case.goal
    taken = measure(case, case.times or arguments.times)
    is_in_time, looked = taken.p50 <= goal, taken.rows.total()
    is_narrow = case.rows is None or looked <= case.rows
    print(
        f"{name:24} p50 {taken.p50:7.0f} ms  p95 {taken.p95:7.0f} ms  CPU {taken.cpu:7.0f} ms"
        f"  {taken.queries:4} queries  {taken.kib:7.0f} KiB  goal {goal:5.0f} ms"
        f"  {'ok' if is_in_time else 'MISSED'}  {looked:9,} rows in a query"
        f" {'' if case.rows is None else f'of {case.rows:,}'} {'' if is_narrow else 'TOO MANY'}",
        flush=True,
    )
    if not is_narrow:
        print(f"{'':24} looks at", *(f"{count:,} of {table}" for table, count in taken.rows.most_common()))
    return is_in_time, is_narrow


def _ask_peer(arguments: argparse.Namespace) -> None:
    """In a database of the same server, which is dropped afterwards."""
    from django.db import connection

    name = f"peer_{os.getpid()}"
    store = urlsplit(os.environ["DATABASE_URL"])._replace(scheme="postgresql+psycopg", path=f"/{name}")
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        command = [arguments.peer, str(PEER), urlunsplit(store)]
        asked = ["--runs", str(arguments.runs), "--times", str(arguments.times)]
        subprocess.run([*command, *asked], check=True)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def measure(case: Case, times: int) -> Taken:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        size = case.ask()
    freeze_for_good()  # as webapp/asgi.py does
    asked, found = len(queries), []
    rows = rows_looked_at([query["sql"] for query in queries])
    database = _backend(connection)
    before = time.process_time() + _cpu(database)
    for _ in range(times):
        began = time.perf_counter()
        case.ask()
        found.append(1e3 * (time.perf_counter() - began))
    cpu = 1e3 * (time.process_time() + _cpu(database) - before) / times
    late = sorted(found)[min(times - 1, int(0.95 * times))]
    return Taken(statistics.median(found), late, cpu, asked, size / 1024, rows)


def _backend(connection: Any) -> psutil.Process:
    """The process of Postgres that answers this one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return psutil.Process(cursor.fetchone()[0])


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    main()
