"""Many hosts at one lab: how throughput grows, who is served, what a killed worker costs, and what the queue
bears.

    python -m benchmarks.fleet [--hosts 8] [--seconds 20] [--waiting 100000] [--claimers 64]

A lab of its own with Postgres as shipped (durable), a web server, and hosts that joined it, each with its own
folder, cache, credentials and one slot. Three users queue simulated schedulers over one uploaded trace, in
unequal amounts, one after another. ``--hosts 0`` leaves the hosts out, ``--waiting 0`` the claims. Workers,
servers and what else this machine does share its cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.queue_costs import Cost, Row, ask, cost_in_words, cpu_of, fill, rows_of_claims, wal_position
from labtools.layout import Layout
from labtools.testing import cores
from workers.embedded import Postgres, Valkey
from workers.services import free_port, running

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ("fifo", "srtf", "las", "sjf")
#: How much of all that waits each user queued.
SHARES = (6, 3, 1)
#: Of the trace, and runs a second that a host is taken to carry out at most.
JOBS, MOST_PER_SECOND = 1000, 4
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
#: As shipped; the far hosts of tests have quicker ones.
SHIPPED = {"RUN_LEASE_SECONDS": "30", "RUN_BEAT_SECONDS": "0.5", "RUN_IDLE_SECONDS": "3"}
#: Runs that are left for the kill, and seconds until anything that is waited for is there.
LAST, LIMIT = 60, 240


@dataclass(frozen=True)
class Level:
    """A window with so many hosts: runs that ended a second, how busy this machine was, what a run cost.

    ``seconds`` are the processor's of hosts and Postgres together, ``cost`` Postgres' share of them.
    """

    hosts: int
    per_second: float
    busy: float
    seconds: float
    cost: Cost
    transactions: float


class Fleet:
    """A lab, a project with three users, and hosts that are added one by one."""

    def __init__(self, folder: Path, postgres: psutil.Process) -> None:
        from tests.webapp.cast import make_cast, ready
        from tests.workers.far import Lab

        self.folder, self.postgres, self.lab, cast = folder, postgres, Lab(folder), make_cast()
        self.project, self.users = cast.project, (cast.max, cast.ada, cast.vera)
        self.trace = ready(cast.project, kind="jobs", name="no host reads it")
        self.lab.start()

    def add_host(self) -> None:
        """As ``./lab worker --join`` does it."""
        from labtools import worker
        from tests.workers.far import address_for

        name = f"host-{len(self.lab.hosts) + 1}"
        (self.folder / name).mkdir()
        worker.join(Layout(ROOT, self.folder / name), address_for(self.project, name))
        self.lab.start_host(name, 1, **SHIPPED)

    def upload(self) -> None:
        from django.core.files.base import ContentFile

        from webapp.artifacts.services import store_upload

        rows = "".join(f"{10 * row},{1 + row % 4},{60 + row % 97}\n" for row in range(JOBS))
        content = ContentFile(f"submit,gpus,service\n{rows}".encode())
        self.trace = store_upload(self.project, self.users[0], "jobs.csv", content)

    def submit(self, runs: int) -> None:
        """About ``runs`` runs: all of the first user's, then all of the second's, then the third's."""
        from webapp.runs.grid import Trial
        from webapp.runs.services import submit_experiment

        hardware = {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "a100-40g"}}
        workload = {"format": "auto", "options": {}}
        for user, share in zip(self.users, SHARES, strict=True):
            specs = [
                {
                    "family": "cluster",
                    "policy": POLICIES[number % len(POLICIES)],
                    "knobs": {},
                    "mode": "simulated",
                }
                | {"workload": workload, "hardware": hardware, "seed": number}
                for number in range(runs * share // sum(SHARES))
            ]
            trials = [Trial(self.trace, spec, "") for spec in specs]
            submit_experiment(self.project, user, name="", trials=trials, request={})


@contextmanager
def deploy() -> Iterator[Fleet]:
    """A lab on servers of its own in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # on a disk: what is durable is to cost what it costs
        folder.chmod(0o755)
        postgres, valkey = Postgres(folder / "postgres", free_port()), Valkey(folder / "valkey", free_port())
        with running(postgres, folder / "postgres.log") as server, running(valkey, folder / "valkey.log"):
            os.environ |= {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}
            os.environ |= {"LAB_VAR": str(folder / "lab"), "DJANGO_SETTINGS_MODULE": "webapp.settings.test"}
            (folder / "lab").mkdir(mode=0o755)
            import django

            django.setup()
            from django.core.management import call_command
            from django.test.utils import setup_test_environment

            setup_test_environment()
            call_command("migrate", "--no-input", "-v0")
            fleet = Fleet(folder, psutil.Process(server.pid))
            try:
                yield fleet
            finally:
                fleet.lab.close()


def jain(served: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything."""
    return sum(served) ** 2 / (len(served) * sum(value**2 for value in served))


def grow(fleet: Fleet, most: int, seconds: float) -> tuple[list[Level], Counter[str]]:
    """Windows with 1, 2, 4 ... hosts, and how many runs of each user were begun in all of them."""
    from tests.workers.crew import until
    from webapp.artifacts.models import Artifact
    from webapp.runs.models import Run

    fleet.add_host()
    fleet.upload()
    read = Artifact.objects.filter(pk=fleet.trace.pk, state="ready")
    until(read.exists, LIMIT, "the trace is read")
    counts = [2**power for power in range(most.bit_length()) if 2**power <= most]
    fleet.submit(int((seconds + 20) * MOST_PER_SECOND * cores() * len(counts)))
    levels, served = [], Counter[str]()
    for count in counts:
        while len(fleet.lab.hosts) < count:
            fleet.add_host()
        until(lambda: len(_hosts_with_an_end()) >= count, LIMIT, "every host has ended a run")  # noqa: B023
        began = datetime.now(UTC)
        levels.append(_window(fleet, count, seconds))
        begun = Run.objects.filter(started_at__gte=began, kind="policy")
        served.update(begun.values_list("owner__username", flat=True))
        waiting = set(Run.objects.filter(state="queued").values_list("owner", flat=True))
        assert len(waiting) == len(SHARES), "a user's runs were all served: the shares say nothing"
    return levels, served


def _hosts_with_an_end() -> set[str]:
    from webapp.runs.models import Run

    return set(Run.objects.filter(state="succeeded", kind="policy").values_list("host__name", flat=True))


def _window(fleet: Fleet, hosts: int, seconds: float) -> Level:
    from webapp.runs.models import Run

    def counters() -> tuple[int, int, float, float]:
        """Bytes of WAL, commits, processor seconds of Postgres and of the whole lab."""
        used = cpu_of(fleet.postgres)
        hosts = [psutil.Process(host.pid) for host in fleet.lab.hosts.values()]
        return wal_position(), ask(COMMITS), used, used + sum(map(cpu_of, hosts))

    before, began = counters(), datetime.now(UTC)
    busy = psutil.cpu_percent(interval=seconds) / 100
    elapsed = (datetime.now(UTC) - began).total_seconds()
    ended = max(1, Run.objects.filter(state="succeeded", finished_at__gte=began).count())
    wal, commits, cpu, all_cpu = (
        (late - early) / ended for late, early in zip(counters(), before, strict=True)
    )
    return Level(hosts, ended / elapsed, busy, all_cpu, Cost(wal, 1e3 * cpu), commits)


def kill_one(fleet: Fleet) -> list[Row]:
    """``kill -9`` of a host's worker in mid-run; all that is left must end once."""
    from tests.workers.crew import until
    from webapp.runs.models import Run, RunDocument

    kept = list(Run.objects.filter(state="queued").order_by("turn").values_list("pk", flat=True)[:LAST])
    Run.objects.filter(state="queued").exclude(pk__in=kept).delete()
    victim, lost = _kill_at_work(fleet)
    began = time.monotonic()
    again = Run.objects.filter(pk__in=lost, attempt__gt=1).exclude(host__name=victim)
    until(lambda: again.count() == len(lost), LIMIT, "what it had is taken up again")
    seconds = time.monotonic() - began
    until(lambda: not Run.objects.exclude(state__in=Run.FINAL).exists(), LIMIT, "every run ended")
    runs = Run.objects.filter(kind="policy")
    succeeded, documents = runs.filter(state="succeeded").count(), RunDocument.objects.count()
    repeated = runs.filter(attempt__gt=1).exclude(pk__in=lost).count()
    return [
        ("killed in mid-run: lost attempt taken up again by another host", f"{seconds:.1f} s (lease 30 s)"),
        (
            "runs lost / attempts of runs that were not the killed one's",
            f"{runs.count() - succeeded} / {repeated}",
        ),
        ("runs that succeeded / outcomes stored", f"{succeeded} / {documents}"),
    ]


def _kill_at_work(fleet: Fleet) -> tuple[str, list[Any]]:
    from tests.workers.crew import until
    from webapp.runs.models import Run

    for victim in list(fleet.lab.hosts):
        at_work = Run.objects.filter(state="running", host__name=victim)
        until(at_work.exists, LIMIT, f"{victim} is at work")
        fleet.lab.kill_host(victim)
        if lost := list(at_work.values_list("pk", flat=True)):
            return victim, lost
    raise SystemExit("every host ended its run in the moment in which it was killed")


def rows_of_hosts(fleet: Fleet, most: int, seconds: float) -> Iterator[Row]:
    levels, served = grow(fleet, most, seconds)
    one, last = levels[0], levels[-1]
    for level in levels:
        said = f"{level.per_second:6.2f} runs/s  {level.per_second / one.per_second:4.2f} times one's"
        cut = f"{level.seconds:.2f} processor s a run, machine {level.busy:.0%} busy"
        yield f"{level.hosts} hosts (at most {min(level.hosts, cores())} times one's)", f"{said}  {cut}"
    shares = ", ".join(f"{name} {count / served.total():.1%}" for name, count in sorted(served.items()))
    connections = ask("SELECT count(*) FROM pg_stat_activity WHERE usename LIKE '%host%'") / last.hosts
    yield f"served while all three wait ({served.total()} runs)", shares
    yield "Jain's index (1/3 where the first to come has all)", f"{jain(list(served.values())):.4f}"
    yield (
        "Postgres for a run's whole life",
        f"{cost_in_words(last.cost)}, {last.transactions:.1f} transactions",
    )
    yield "connections of a host with one slot", f"{connections:.1f}"
    yield "the trace, fetched once by each host", f"{fleet.trace.blob.size:,} bytes"
    yield "result of a run, stored in Postgres", f"{_document_bytes():,} bytes"
    yield from kill_one(fleet)


def _document_bytes() -> int:
    return ask("SELECT avg(octet_length(outcome::text)) FROM runs_rundocument")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="of the window at each number of hosts")
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--claimers", type=int, default=64)
    options = parser.parse_args()
    print(f"{cores()} cores, load before {os.getloadavg()[0]:.1f}", flush=True)
    with deploy() as fleet:
        if options.hosts:
            show(rows_of_hosts(fleet, options.hosts, options.seconds))
        fleet.lab.close()
        if options.waiting:
            fill(options.waiting, fleet.submit)
            show(rows_of_claims(fleet.postgres, options.claimers))


def show(rows: Iterable[Row]) -> None:
    for name, value in rows:
        print(f"{name:64} {value}", flush=True)


if __name__ == "__main__":
    main()
