"""A lab with as many runs as a team has after years, written by COPY: nothing is carried out.

Every run has ``KNOBS`` knobs and twenty metrics. One experiment of 10,000 runs comes first (a whole file of
them is asked for), then experiments of ``PER_EXPERIMENT`` each; the newest is still live: some of its runs
wait, some run. The same seed gives the same figures.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from experiments.core.metrics import METRICS

KNOBS = 20
NAMES = tuple(METRICS)[:20]
POLICIES = ("baseline", "vdnn-all", "vdnn-dyn", "checkpoint", "g10", "swapadvisor", "dtr", "capuchin")
HARDWARE = ("a100-40g", "a100-80g", "h100-80g", "t4-16g", "titan-x-12g")
WIDE = 10_000
PER_EXPERIMENT = 100
SPACING = timedelta(seconds=10)
#: How of a hundred runs those end that do not succeed.
ENDS = {"infeasible": 4, "failed": 3, "cancelled": 2, "rejected": 1}
RUN_COLUMNS = (
    "id", "project_id", "experiment_id", "artifact_id", "owner_id", "host_id", "kind", "spec", "spec_id",
    "family", "policy", "hardware", "mode", "seed", "needs", "priority", "turn", "effort", "state",
    "attempt", "infrastructure_losses", "crashes", "cancel_requested", "progress", "progress_step",
    "queued_at", "started_at", "finished_at", "outcome_status", "reason", "signal", "model_states",
    "dashboard_status", "sandbox_tier", "log_tail",
)  # fmt: skip
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Seeded:
    """Where the seeded runs are: addresses of ``project`` need its slugs and these."""

    team: str
    project: str
    user: int
    live: UUID
    wide: UUID
    #: Of 200 runs of many experiments, to be compared.
    some: tuple[UUID, ...]


@dataclass(frozen=True)
class _Place:
    """What every row names."""

    project: int
    artifact: int
    user: int
    host: int
    newest: datetime


def seed(runs: int, seed: int = 0) -> Seeded:
    """Write ``runs`` runs and the 10,000 of the wide experiment into the lab of Django's settings."""
    from django.db import connection

    team, project, place = _people()
    rng = random.Random(seed)
    experiments = _experiments(rng, runs)
    ids = [_uuid(rng) for _ in range(sum(size for _, size in experiments))]
    with connection.cursor() as cursor, _without_indexes(cursor, "runs_run", "runs_runmetric"):
        names = ("id", "project_id", "name", "request", "created_by_id", "created_at")
        _copy(cursor, "runs_experiment", names, _experiment_rows(experiments, place))
        _copy(cursor, "runs_run", RUN_COLUMNS, _run_rows(rng, experiments, ids, place))
        finished = ids[PER_EXPERIMENT:]
        # Nothing is in segments yet, so that there is nothing to be marked.
        cursor.execute("ALTER TABLE runs_runmetric DISABLE TRIGGER history_mark_insert")
        _copy(cursor, "runs_runmetric", ("run_id", "name", "value"), _metric_rows(rng, finished))
        cursor.execute("ALTER TABLE runs_runmetric ENABLE TRIGGER history_mark_insert")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    some = tuple(finished[:: max(1, len(finished) // 200)][:200])
    return Seeded(team, project, place.user, experiments[0][0], experiments[-1][0], some)


def _people() -> tuple[str, str, _Place]:
    from webapp.accounts.models import Membership, Project, Role, Team, User
    from webapp.artifacts.models import Artifact
    from webapp.hosts.models import Host

    user, _ = User.objects.get_or_create(username="benchmark")
    team, _ = Team.objects.get_or_create(name="Benchmark", slug="benchmark")
    Membership.objects.get_or_create(team=team, user=user, role=Role.ADMIN)
    project, _ = Project.objects.get_or_create(team=team, name="History", slug="history")
    model, _ = Artifact.objects.get_or_create(
        project=project, name="gpt2", zoo="gpt2", source="zoo", state="ready", kind="model"
    )
    host, _ = Host.objects.get_or_create(name="node-1", cores=64, slots=8)
    newest = datetime.now(UTC).replace(microsecond=0)
    return team.slug, project.slug, _Place(project.pk, model.pk, user.pk, host.pk, newest)


def _uuid(rng: random.Random) -> UUID:
    return UUID(int=rng.getrandbits(128), version=4)


def _experiments(rng: random.Random, runs: int) -> list[tuple[UUID, int]]:
    """Id and number of runs, newest first: the live one leads, the wide one is the oldest."""
    sizes = [PER_EXPERIMENT] * (runs // PER_EXPERIMENT) + [WIDE]
    return [(_uuid(rng), size) for size in sizes]


def _experiment_rows(experiments: list[tuple[UUID, int]], place: _Place) -> Iterator[Row]:
    at = place.newest
    for number, (key, size) in enumerate(experiments):
        yield key, place.project, f"sweep {number} on gpt2", "{}", place.user, at
        at -= size * SPACING


def _run_rows(
    rng: random.Random, experiments: list[tuple[UUID, int]], ids: list[UUID], place: _Place
) -> Iterator[Row]:
    ended = [state for state, share in ENDS.items() for _ in range(share)]
    ended += ["succeeded"] * (100 - len(ended))
    at, keys = place.newest, iter(ids)
    for number, (experiment, size) in enumerate(experiments):
        for index in range(size):
            state = rng.choice(ended) if number else ("running" if index < 8 else "queued")
            yield _run_row(rng, next(keys), experiment, state, at, place)
            at -= SPACING


def _run_row(rng: random.Random, key: UUID, experiment: UUID, state: str, at: datetime, place: _Place) -> Row:
    policy, hardware, number = rng.choice(POLICIES), rng.choice(HARDWARE), rng.randrange(1000)
    knobs = {f"k{i:02}": (number * (i + 7)) % 97 for i in range(KNOBS)}
    workload = {"source": f"artifact:{place.artifact}", "options": {"batch": 8 << number % 4}}
    spec = {"family": "memory", "policy": policy, "workload": workload, "knobs": knobs}
    spec |= {"hardware": hardware, "mode": "simulated", "seed": number}
    has_begun, has_ended = state != "queued", state not in ("queued", "running")
    answered = {"succeeded": "ok", "cancelled": ""}.get(state, state) if has_ended else ""
    return (
        key, place.project, experiment, place.artifact, place.user, place.host if has_begun else None,
        "policy", orjson.dumps(spec).decode(), f"{rng.getrandbits(256):064x}", "memory", policy, hardware,
        "simulated", number, "", 0, 0, "", state, int(has_begun), 0, 0, False,
        1.0 if has_ended else 0.3 * has_begun, "", at, at if has_begun else None,
        at + SPACING if has_ended else None, answered, "" if answered in ("", "ok") else "as seeded", "", "",
        "", "", "",
    )  # fmt: skip


def _metric_rows(rng: random.Random, ids: Iterable[UUID]) -> Iterator[Row]:
    draw = rng.random
    for key in ids:
        for name in NAMES:
            yield key, name, draw()


def _copy(cursor: Any, table: str, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
    with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for chunk in _chunks(rows):
            copy.write(chunk)


def _chunks(rows: Iterable[Row], size: int = 20_000) -> Iterator[str]:
    """Rows in COPY's text form: no value here has a tab, a line end or a backslash."""
    lines: list[str] = []
    for row in rows:
        lines.append("\t".join(["\\N" if value is None else str(value) for value in row]))
        if len(lines) == size:
            yield "\n".join(lines) + "\n"
            lines.clear()
    yield "".join(f"{line}\n" for line in lines)


@contextmanager
def _without_indexes(cursor: Any, *tables: str) -> Iterator[None]:
    """Constraints and indexes of ``tables`` are built once, after all rows are there."""
    constraints = """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = ANY (%s::regclass[]) AND contype IN ('u', 'f')"""
    indexes = """
        SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
        WHERE indrelid = ANY (%s::regclass[]) AND NOT indisprimary"""
    cursor.execute(constraints, [list(tables)])
    held = cursor.fetchall()
    for table, name, _ in held:
        cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    cursor.execute(indexes, [list(tables)])
    indexed = cursor.fetchall()
    for name, _ in indexed:
        cursor.execute(f"DROP INDEX {name}")
    yield
    for _, definition in indexed:
        cursor.execute(definition)
    for table, name, definition in held:
        cursor.execute(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}')
