"""What the queue costs Postgres: claims by many claimers at once, and each of a worker's words by itself.

Used by ``benchmarks.fleet``. Claimers are processes with a connection each and do nothing but claim. With a
rate they claim on a schedule, and a claim's time begins when it was due, so that a queue that falls behind
shows; without one each claims as fast as it can.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import psutil

#: Seconds for all claimers to be ready.
READY = 6.0
#: Claims a second that must be borne, and the seconds that 99 of 100 may take.
GOAL, GOAL_SECONDS = 500, 0.05
Row = tuple[str, str]


@dataclass(frozen=True)
class Cost:
    """Of one action: bytes of write-ahead log, milliseconds of Postgres' processor time."""

    wal_bytes: float
    cpu_ms: float


@dataclass(frozen=True)
class Claims:
    """What claimers had: ``offered`` claims a second (0: as fast as each can), all their seconds, sorted.

    ``claimer_ms``: of a claimer's own processor, for each claim.
    """

    offered: float
    per_second: float
    seconds: tuple[float, ...]
    twice: int
    cost: Cost
    claimer_ms: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that ``share`` of all do not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def wal_position() -> int:
    """Bytes of write-ahead log that Postgres wrote since it was made."""
    return ask("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")


def cpu_of(parent: psutil.Process) -> float:
    """Processor seconds of a process and all below it, those that ended included."""
    own = parent.cpu_times()
    found = own.user + own.system + own.children_user + own.children_system
    for process in parent.children(recursive=True):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += used.user + used.system
    return float(found)


def cost_of(postgres: psutil.Process, action: Callable[[], object], times: int = 300) -> Cost:
    """What one ``action`` costs while nothing else is asked of Postgres."""
    bytes_before, cpu_before = wal_position(), cpu_of(postgres)
    for _ in range(times):
        action()
    wal, cpu = wal_position() - bytes_before, cpu_of(postgres) - cpu_before
    return Cost(wal / times, 1e3 * cpu / times)


def costs_of_words(postgres: psutil.Process) -> dict[str, Cost]:
    """What a worker says and asks besides its claims; needs a run that waits."""
    from webapp.hosts import services
    from webapp.hosts.models import Host
    from webapp.runs import lifecycle

    host = Host.objects.get_or_create(name="claimer-0")[0]
    # What claimers left is over: no lease ends meanwhile.
    lifecycle.Run.objects.filter(state="running").update(state="cancelled", lease_until=None)
    claim = lifecycle.claim(host, [], "benchmark")
    assert claim is not None, "no run waits"

    def beat() -> None:
        lifecycle.renew(claim, (0.5, "halfway"))
        lifecycle.is_cancelled(claim)

    def look_in_vain() -> None:
        assert lifecycle.claim(host, [], "benchmark", lifecycle.Q(family="no such family")) is None

    words: dict[str, Callable[[], object]] = {
        "a host's heartbeat": lambda: services.heartbeat(host),
        "looking for lost runs": lifecycle.reap,
        "a lease renewed, with progress": beat,
    }
    found = {name: cost_of(postgres, word) for name, word in words.items()}
    lifecycle.Run.objects.filter(state="queued").update(state="cancelled")
    _vacuum()
    return found | {"a look at an empty queue": cost_of(postgres, look_in_vain)}


def fill(waiting: int, submit: Callable[[int], None]) -> None:
    """Have ``waiting`` runs wait: a thousand that ``submit`` queues, and copies of them with later turns."""
    from django.db import connection

    from webapp.runs.models import Run

    submit(min(waiting, 1000))
    queued = Run.objects.filter(state="queued")
    made = queued.count()
    columns = [field.column for field in Run._meta.concrete_fields]
    changed = {"id": "gen_random_uuid()", "turn": f"turn + {made} * copy"}
    values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO runs_run ({names}) SELECT {values} FROM runs_run, generate_series(1, %s) AS copy"
            " WHERE state = 'queued'",
            [max(0, -(-waiting // made) - 1)],
        )
    _vacuum()


def claim_together(postgres: psutil.Process, claimers: int, each: int, offered: float) -> Claims:
    """``claimers`` processes claim ``each`` runs, ``offered`` a second together (0: as fast as they can)."""
    from django.db import connections

    from webapp.hosts.models import Host

    for number in range(claimers):
        Host.objects.get_or_create(name=f"claimer-{number}")
    wal, cpu = wal_position(), cpu_of(postgres)
    connections.close_all()
    start = time.time() + READY
    with multiprocessing.get_context("fork").Pool(claimers) as pool:
        work = partial(
            claim_on_schedule, start=start, each=each, interval=claimers / offered if offered else 0
        )
        parts = pool.map(work, range(claimers), chunksize=1)
        elapsed = max(end for _, _, end, _ in parts) - start
        used = cpu_of(postgres) - cpu
    runs = [run for ids, *_ in parts for run in ids]
    seconds = tuple(sorted(second for _, found, *_ in parts for second in found))
    cost = Cost((wal_position() - wal) / len(runs), 1e3 * used / len(runs))
    own = 1e3 * sum(used for *_, used in parts) / len(runs)
    return Claims(offered, len(seconds) / elapsed, seconds, len(runs) - len(set(runs)), cost, own)


def claim_on_schedule(
    number: int, start: float, each: int, interval: float
) -> tuple[list[UUID], list[float], float, float]:
    """Claimed runs, seconds of each claim, when the last one was there, processor seconds of this process.

    What a worker does once is over before the ``start``: it connects and has its first claim, for which the
    statement is composed and planned.
    """
    from webapp.hosts.models import Host
    from webapp.runs import lifecycle

    host = Host.objects.get(name=f"claimer-{number}")
    first = lifecycle.claim(host, [], "benchmark")
    runs, seconds, end, used = [first.run.pk] if first else [], [], start, time.process_time()
    # Claimers are spread over the interval, as hosts are that know nothing of each other.
    due = start + interval * ((number * 0.618) % 1)
    for _ in range(each):
        time.sleep(max(0.0, due - time.time()))
        claim = lifecycle.claim(host, [], "benchmark")
        if claim is None:
            break
        end = time.time()
        runs.append(claim.run.pk)
        seconds.append(end - due)
        due = due + interval if interval else end
    return runs, seconds, end, time.process_time() - used


def rows_of_claims(postgres: psutil.Process, claimers: int) -> Iterator[Row]:
    """Claims at rising rates, then what a worker says and asks besides them; uses up the runs that wait."""
    yield "waiting", f"{ask('SELECT count(*) FROM runs_run WHERE state = $$queued$$'):,} runs"
    for offered in (100, 250, GOAL, 0):
        each = max(20, int(6 * (offered or 300) / claimers))
        yield row_of_claims(claimers, claim_together(postgres, claimers, each, offered))
    for name, cost in costs_of_words(postgres).items():
        yield name, cost_in_words(cost)


def row_of_claims(claimers: int, claims: Claims) -> Row:
    asked = f"{claims.offered:g}/s asked for" if claims.offered else "as fast as each can"
    p50, p99 = (1e3 * percentile(claims.seconds, share) for share in (0.5, 0.99))
    goal = ""
    if claims.offered == GOAL:
        is_kept = claims.per_second >= 0.98 * GOAL and p99 <= 1e3 * GOAL_SECONDS
        goal = f"  goal {GOAL}/s, p99 {1e3 * GOAL_SECONDS:g} ms: {'ok' if is_kept else 'MISSED'}"
    times = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, claimed twice {claims.twice}"
    own = f"{claims.claimer_ms:.2f} ms of the claimer's"
    name = f"{claimers} claimers, {asked}"
    return name, f"{claims.per_second:6.1f} claims/s, {times}; {cost_in_words(claims.cost)}, {own}{goal}"


def cost_in_words(cost: Cost) -> str:
    return f"{cost.wal_bytes:,.0f} bytes of WAL, {cost.cpu_ms:.2f} ms of its processor"


def ask(query: str) -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


def _vacuum() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE runs_run")
