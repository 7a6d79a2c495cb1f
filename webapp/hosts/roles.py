"""Database roles of joined hosts: what a worker reads and writes to carry out runs, and nothing else.

The privileges belong to one group for each database. Row-level security adds what columns cannot say: a host
writes about runs in its own hands, and about no run that has ended.
"""

from __future__ import annotations

import hashlib
from typing import LiteralString

from django.db import connection, transaction
from psycopg import sql

from webapp.hosts.models import HostAccess

#: A joined host opens a connection for each slot, and some for leases and heartbeats.
CONNECTIONS = 64
#: The table whose comment says which privileges were given.
STAMPED = "hosts_hostaccess"
LIFE = (
    "state, attempt, host_id, sandbox_tier, lease_until, heartbeat_at, started_at, finished_at, progress, "
    "progress_step, progress_at, not_before, infrastructure_losses, crashes, reason, outcome_status, "
    "exit_code, signal, peak_rss_bytes, log_tail, spec, spec_id, model_states, dashboard_status, after_id"
)
FOUND = "state, kind, format, reason, summary, assumed, warnings, blob_id, project_id, name, created_at"
PRESENCE = (
    "device_kinds, devices, cores, memory_bytes, versions, sandbox_tier, slots, trouble, heartbeat_at, "
    "registered_at"
)
GRANTS: dict[str, str] = {
    "accounts_project": "SELECT",
    "advice_advice": "SELECT, UPDATE (answer, answered_at)",
    "artifacts_artifact": f"SELECT, INSERT, UPDATE ({FOUND})",
    "artifacts_blob": "SELECT",
    # The audit log of derived artifacts.
    "auditlog_logentry": "SELECT (id), INSERT",
    "django_content_type": "SELECT",
    "hosts_host": f"SELECT, UPDATE ({PRESENCE})",
    "hosts_validation": "SELECT, INSERT",
    "runs_run": f"SELECT, INSERT, UPDATE ({LIFE})",
    "runs_rundocument": "SELECT (run_id), INSERT",
    "runs_runmetric": "SELECT (id), INSERT",
}
SELF = "(SELECT id FROM hosts_host WHERE role = current_user)"
MINE = f"EXISTS (SELECT 1 FROM runs_run WHERE runs_run.id = run_id AND host_id = {SELF})"
WAITING_OR_MINE = f"state = 'queued' OR state = 'running' AND (host_id = {SELF} OR lease_until < now())"
#: Table, command and what must hold: of the row as it is (USING) or as it becomes (WITH CHECK).
POLICIES: tuple[tuple[str, str, str], ...] = (
    ("hosts_host", "SELECT", "USING (true)"),
    ("hosts_host", "UPDATE", "USING (role = current_user)"),
    ("runs_run", "SELECT", "USING (true)"),
    ("runs_run", "INSERT", "WITH CHECK (state = 'queued' AND kind IN ('inspect', 'capture'))"),
    ("runs_run", "UPDATE", f"USING ({WAITING_OR_MINE}) WITH CHECK (true)"),
    ("runs_rundocument", "SELECT", "USING (true)"),
    ("runs_rundocument", "INSERT", f"WITH CHECK ({MINE})"),
    ("runs_runmetric", "SELECT", "USING (true)"),
    ("runs_runmetric", "INSERT", f"WITH CHECK ({MINE})"),
)


def create(role: str, password: str) -> None:
    """A login in the group of hosts. ``django.db.ProgrammingError`` where the lab may not make roles."""
    group = prepare_group()
    with connection.cursor() as cursor:
        # Hashed here, so that the password stands in no log of the server.
        hashed = cursor.connection.pgconn.encrypt_password(
            password.encode(), role.encode(), b"scram-sha-256"
        ).decode()
        made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} CONNECTION LIMIT {} IN ROLE {}")
        cursor.execute(
            made.format(sql.Identifier(role), hashed, sql.Literal(CONNECTIONS), sql.Identifier(group))
        )


def drop(role: str) -> None:
    """No new connection, no old one, no role."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        if cursor.fetchone() is None:
            return
        cursor.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role])
        cursor.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def prepare_group() -> str:
    """The group with its privileges as this revision needs them; its name."""
    name, stamp = _group(), hashlib.sha256(repr((GRANTS, POLICIES)).encode()).hexdigest()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])
        if not _has_group():
            cursor.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
        # A group outlives its database, a restored database its group.
        told = "SELECT obj_description(%s::regclass), has_any_column_privilege(%s, 'runs_run', 'UPDATE')"
        cursor.execute(told, [STAMPED, name])
        if cursor.fetchone() != (stamp, True):
            _grant(cursor, sql.Identifier(name))
            cursor.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(STAMPED), stamp))
    return name


def refresh(**_: object) -> None:
    """Handler of ``post_migrate``: joined hosts may do what their next revision needs."""
    if HostAccess.objects.exists():
        with transaction.atomic():
            prepare_group()


def _has_group() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [_group()])
        return cursor.fetchone() is not None


def _group() -> str:
    return f"{connection.settings_dict['NAME']}_hosts"


def _grant(cursor: object, group: sql.Identifier) -> None:
    def run(text: LiteralString | str, **names: sql.Composable) -> None:
        statement = sql.SQL(text).format(group=group, **names)
        cursor.execute(statement)  # type: ignore[attr-defined]

    run("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {group}")
    run("GRANT USAGE ON SCHEMA public TO {group}")
    for table, privileges in GRANTS.items():
        run(f"GRANT {privileges} ON {{table}} TO {{group}}", table=sql.Identifier(table))
    for table, command, rule in POLICIES:
        named = {"table": sql.Identifier(table), "policy": sql.Identifier(f"hosts_{command.lower()}")}
        run("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", **named)
        run("DROP POLICY IF EXISTS {policy} ON {table}", **named)
        run(f"CREATE POLICY {{policy}} ON {{table}} FOR {command} TO {{group}} {rule}", **named)
