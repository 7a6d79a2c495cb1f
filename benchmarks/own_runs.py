"""How fast own runs are logged and drawn: one of a million points, and twenty of 60,000 compared.

    python -m benchmarks.own_runs

A program logs through the client to a web process, both on this host, until the server has every point. Then
the pages that draw them are asked for, a request for each point is timed, and the month is packed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.dashboard import Browser, Program, lab

PROGRAM = """
import math, sys, time
from experiments.client import Lab
url, token, project, folder, *numbers = sys.argv[1:]
steps, figures, runs = map(int, numbers)
lab = Lab(url, token, project, folder=folder)
for number in range(runs):
    began = time.perf_counter()
    with lab.log("net", params={"lr": 0.1 * (number + 1)}, experiment=f"{steps} steps") as run:
        for step in range(steps):
            run.log(step, {f"part{k}/loss": math.exp(-step / steps) * k for k in range(figures)})
        logged = time.perf_counter() - began
        run.end(patience=600)
    print(logged, time.perf_counter() - began)
"""
#: Steps, figures and runs.
SIZES = ((100_000, 10, 1), (12_000, 5, 20))


@contextmanager
def web_process() -> Iterator[str]:
    """The application in a thread, as the pages are served; its address."""
    import uvicorn
    from django.core.asgi import get_asgi_application

    from workers.services import free_port

    config = uvicorn.Config(get_asgi_application(), port=free_port(), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{config.port}"
    server.should_exit = True


def main() -> None:
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with lab(None, 200) as seeded, web_process() as url:
        browser = Browser(seeded)
        secret = make_token(seeded)
        for steps, figures, runs in SIZES:
            log(url, secret, seeded.project, (steps, figures, runs))
            draw(browser)
        alone(Program(browser))
        pack()


def make_token(seeded: Any) -> str:
    from webapp.accounts.models import Role, Team, User
    from webapp.api import services

    user = User.objects.get(pk=seeded.user)
    return services.make_token(Team.objects.get(slug=seeded.team), user, "program", Role.MEMBER)[1]


def log(url: str, secret: str, project: str, size: tuple[int, int, int]) -> None:
    """Print what a program takes to log so many steps, figures and runs, and until all are stored."""
    steps, figures, runs = size
    with tempfile.TemporaryDirectory() as folder:
        words = [url, secret, project, folder, *map(str, size)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path.cwd(),
        )
    told = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    logged, stored = (sum(one[place] for one in told) for place in (0, 1))
    points = steps * figures * runs
    print(
        f"{runs} runs of {steps * figures:,} points: logged at {points / logged:,.0f} a second,"
        f" stored at {points / stored:,.0f} a second (goal 10,000)",
        flush=True,
    )


def draw(browser: Browser) -> None:
    from webapp.runs.models import Run

    one = Run.objects.filter(kind=Run.Kind.LOGGED).latest("queued_at")
    for name, path in (
        ("page of a run", f"own-runs/{one.pk}"),
        ("runs compared", f"own-runs/?experiment={one.experiment_id}"),
    ):
        began = time.perf_counter()
        size = browser.size(path)
        print(f"  {name}: {1e3 * (time.perf_counter() - began):.0f} ms, {size / 1024:.0f} KiB", flush=True)


def alone(program: Program) -> None:
    """A request for each point."""
    began = time.perf_counter()
    for _ in range(200):
        program.log(1)
    print(f"a request for each point: {200 / (time.perf_counter() - began):,.0f} points a second")


def pack() -> None:
    from django.db import connection

    from webapp.logged import points

    def size(table: str) -> float:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size(%s::regclass)", [table])
            return float(cursor.fetchone()[0]) / 1e6

    month = f"logged_point_{datetime.now(UTC):%Y_%m}_01"
    before, began = size(month), time.perf_counter()
    points.pack((datetime.now(UTC) + timedelta(days=90)).date())
    took = time.perf_counter() - began
    print(f"a month of {before:.0f} MB packed into {size('logged_packed'):.0f} MB in {took:.1f} s")


if __name__ == "__main__":
    main()
