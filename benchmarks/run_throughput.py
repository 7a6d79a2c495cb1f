"""Forty simulated memory runs on one captured GPT-2, through the real queue and real workers; and idle workers.

    python benchmarks/run_throughput.py [--runs 40] [--slots 2]

Starts its own PostgreSQL, Valkey and worker in a temporary folder. Bounds: first finished within 3 s, all within 30 s.
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
    from webapp.accounts.models import Project, Team, User
    from webapp.artifacts.services import add_zoo
    from webapp.hosts.models import Host

    user = User.objects.create(username="benchmark")
    project = Project.objects.create(
        team=Team.objects.create(name="benchmark", slug="benchmark"), name="benchmark", slug="benchmark"
    )
    wait_until(Host.objects.exists, 60)
    model = add_zoo(project, user, "gpt2")
    _, capture = finished(project, user, model, 1)
    first, last = finished(project, user, model, runs)
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


def finished(project, user, model, count: int) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Seconds from submission to the first and to the last end."""
    from webapp.runs.models import Run
    from webapp.runs.services import submit_experiment

    started = time.time()
    made = submit_experiment(project, user, name="", trials=trials(model, count), request={})
    wait_until(lambda: not made.runs.exclude(state__in=Run.FINAL).exists(), 300)
    bad = made.runs.exclude(state=Run.State.SUCCEEDED).first()
    if bad is not None:
        raise SystemExit(f"run {bad.pk} ended {bad.state}: {bad.reason}")
    ends = sorted(run.finished_at.timestamp() - started for run in made.runs.all())
    return ends[0], ends[-1]


def trials(model, count: int):  # type: ignore[no-untyped-def]
    """Every policy on devices of growing memory, so that no two runs are the same."""
    from webapp.runs.grid import Trial

    workload = {"format": "auto", "options": {"batch": 8, "sequence": 1024}}
    return [
        Trial(
            model,
            {
                "family": "memory",
                "policy": POLICIES[i % len(POLICIES)],
                "knobs": {},
                "hardware": {
                    "device": "a100-40g",
                    "overrides": {"memory_bytes": (16 + i // len(POLICIES)) * 1e9},
                },
                "mode": "simulated",
                "seed": 0,
                "workload": workload,
            },
            "",
        )
        for i in range(count)
    ]


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
