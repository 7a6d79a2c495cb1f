"""Forty simulated memory runs on one captured GPT-2, through the real queue and real workers; and idle
workers.

    python benchmarks/run_throughput.py [--runs 40] [--slots 2]

Starts its own PostgreSQL, Valkey and worker in a temporary folder. Bounds: first finished within 3 s, all
within 30 s.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from workers.services import temporary_servers  # noqa: E402

FIRST_SECONDS, ALL_SECONDS, IDLE_SECONDS = 3.0, 30.0, 10.0
POLICIES = ("baseline", "swap_all", "vdnn-all", "vdnn-dyn", "checkpoint")


@contextmanager
def worker(folder: Path, slots: int) -> Iterator[psutil.Process]:
    """A Celery worker on the servers of the environment, ended as an operator would end it."""
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--concurrency", str(slots)]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measure(runs: int, process: psutil.Process) -> list[tuple[str, float, float]]:
    """Rows of (what, measured, bound), in seconds."""
    from webapp.accounts.models import Project, Role, Team, User
    from webapp.api.services import make_token
    from webapp.hosts.models import Host

    user = User.objects.create(username="benchmark")
    team = Team.objects.create(name="benchmark", slug="benchmark")
    Project.objects.create(team=team, name="benchmark", slug="benchmark")
    _, token = make_token(team, user, "benchmark", Role.MEMBER)
    wait_until(Host.objects.exists, 60)
    _, capture = finished(token, 1)
    first, last = finished(token, runs)
    time.sleep(2)
    before = sum(process.cpu_times()[:2])
    time.sleep(IDLE_SECONDS)
    idle = sum(process.cpu_times()[:2]) - before
    return [
        ("one run, its step captured first", capture, float("inf")),
        (f"first of {runs} finished", first, FIRST_SECONDS),
        (f"all {runs} finished", last, ALL_SECONDS),
        (f"worker's CPU over {IDLE_SECONDS:g} idle seconds", idle, 0.2),
    ]


def finished(token: str, count: int) -> tuple[float, float]:
    """Seconds from the request to the API to the first and to the last end."""
    from django.test import Client

    from webapp.runs.models import Run

    started = time.time()
    answer = Client(headers={"Authorization": f"Bearer {token}", "Host": "localhost"}).post(
        "/api/v1/experiments", {"name": "forty", "runs": specs(count)}, content_type="application/json"
    )
    if answer.status_code != 201:
        raise SystemExit(f"the API answered {answer.status_code}: {answer.content[:300]!r}")
    made = Run.objects.filter(experiment=answer.json()["id"])
    wait_until(lambda: not made.exclude(state__in=Run.FINAL).exists(), 300)
    bad = made.exclude(state=Run.State.SUCCEEDED).first()
    if bad is not None:
        raise SystemExit(f"run {bad.pk} ended {bad.state}: {bad.reason}")
    ends = sorted(run.finished_at.timestamp() - started for run in made)
    return ends[0], ends[-1]


def specs(count: int) -> list[dict[str, object]]:
    """Every policy on devices of growing memory, so that no two runs are the same."""
    workload = {"source": "zoo:gpt2", "options": {"batch": 8, "sequence": 1024}}
    rows = []
    for i in range(count):
        overrides = {"memory_bytes": (16 + i // len(POLICIES)) * 1e9}
        hardware = {"device": "a100-40g", "overrides": overrides}
        policy = POLICIES[i % len(POLICIES)]
        rows.append({"family": "memory", "policy": policy, "workload": workload, "hardware": hardware})
    return rows


def wait_until(condition, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing more happened within {seconds} s")
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--slots", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with temporary_servers(folder) as servers:
            os.environ.update(
                DATABASE_URL=servers.database_url,
                REDIS_URL=servers.redis_url,
                LAB_VAR=str(folder / "var"),
                SECRET_KEY="of this benchmark",
                DJANGO_SETTINGS_MODULE="webapp.settings.local",
            )
            subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, check=True)
            import django

            django.setup()
            with worker(folder, arguments.slots) as process:
                rows = measure(arguments.runs, process)
    for what, measured, bound in rows:
        print(
            f"{what:45} {measured:8.2f} s   bound {bound:6.2f} s   {'ok' if measured <= bound else 'MISSED'}"
        )
    return 0 if all(measured <= bound for _, measured, bound in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
