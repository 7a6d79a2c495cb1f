"""What MLflow's tracking server takes for what ``benchmarks.dashboard`` asks, over the same figures.

    PYTHON benchmarks/dashboard_peer.py STORE [--runs 10000] [--times 20]

``PYTHON`` has MLflow, in an environment of its own; ``STORE`` is an empty database as SQLAlchemy names it
(``sqlite:////tmp/peer.db``, ``postgresql+psycopg://...``), which it fills. Its REST interface is asked in
this process. It has no OR, no groups and compares parameters as text, so its search is the nearest that it
can say.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

KNOBS, METRICS, WIDE, BATCH, SERIES = 20, 20, 10_000, 1_000, 12_000
STARTED = 1_790_000_000_000
API = "/api/2.0/mlflow/runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    os.environ |= {
        "_MLFLOW_SERVER_FILE_STORE": arguments.store,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "/nonexistent",
    }
    import mlflow
    from mlflow.server import app

    experiment = seed(arguments.store, arguments.runs)
    mlflow.set_tracking_uri(arguments.store)
    print(f"MLflow {mlflow.__version__}, {arguments.runs:,} runs", flush=True)
    for name, (ask, times) in cases(app.test_client(), experiment, arguments.times).items():
        ask()
        backends = backends_of(arguments.store)
        taken, used = zip(*(_milliseconds(ask, backends) for _ in range(times)), strict=True)
        middle, cpu = statistics.median(taken), statistics.mean(used)
        print(f"{name:28} p50 {middle:7.0f} ms  CPU {cpu:7.0f} ms", flush=True)


def _milliseconds(ask: Callable[[], Any], backends: Sequence[int]) -> tuple[float, float]:
    """Of the clock and of the processor: of this process, which has SQLite in it, and of the backends."""
    began, used = time.perf_counter(), time.process_time() + _processor_seconds(backends)
    ask()
    return 1e3 * (time.perf_counter() - began), 1e3 * (
        time.process_time() + _processor_seconds(backends) - used
    )


def backends_of(store: str) -> list[int]:
    """The processes of Postgres that answer this one; SQLite has none."""
    from sqlalchemy import create_engine, text

    if not store.startswith("postgresql"):
        return []
    own = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with create_engine(store).connect() as connection:
        return [int(row.pid) for row in connection.execute(text(own))]


def _processor_seconds(processes: Sequence[int]) -> float:
    """Seconds of processor time so far, by Linux."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
    return sum(int(of[11]) + int(of[12]) for of in fields) / os.sysconf("SC_CLK_TCK")


def cases(client: Any, experiment: int, times: int) -> dict[str, tuple[Callable[[], Any], int]]:
    import mlflow

    def find(most: int, condition: str = "", fewest: int = 1) -> None:
        asked = {"experiment_ids": [str(experiment)], "max_results": most, "filter": condition}
        answer = client.post(f"{API}/search", json=asked)
        assert answer.status_code == 200 and len(answer.get_json()["runs"]) >= fewest, answer.data[:300]

    def csv() -> None:
        table = mlflow.search_runs([str(experiment)], max_results=WIDE)
        assert len(table) == WIDE
        table.to_csv()

    made = client.post(f"{API}/create", json={"experiment_id": str(experiment)}).get_json()
    run, step = made["run"]["info"]["run_id"], iter(range(10**9))

    def log(points: int, name: str = "other") -> None:
        rows = [{"key": name, "value": 0.25, "timestamp": STARTED, "step": next(step)} for _ in range(points)]
        answer = client.post(f"{API}/log-batch", json={"run_id": run, "metrics": rows})
        assert answer.status_code == 200, answer.data[:300]

    for _ in range(SERIES // BATCH):
        log(BATCH, "loss")

    def series() -> None:
        asked = {"run_id": run, "metric_key": "loss", "max_results": SERIES}
        answer = client.get("/api/2.0/mlflow/metrics/get-history", query_string=asked)
        assert len(json.loads(answer.data)["metrics"]) == SERIES

    condition = "metrics.m00 < 0.5 and metrics.m01 < 0.5 and params.k03 = '50'"
    return {
        "100 runs": (lambda: find(100), times),
        "search": (lambda: find(100, condition), times),
        "1,000 full runs by a metric": (lambda: find(1_000, "metrics.m00 < 0.5", 1_000), times),
        f"CSV of {WIDE:,} runs": (csv, 3),
        "a logged point": (lambda: log(1), times),
        f"{BATCH:,} logged points": (lambda: log(BATCH), times),
        f"series of {SERIES:,} points": (series, times),
    }


def seed(store: str, runs: int) -> int:
    """An experiment with as many runs as ``benchmarks.seeding`` writes, of as many knobs and figures."""
    from mlflow.store.tracking.dbmodels import models
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import insert

    opened = SqlAlchemyStore(store, "/nonexistent")
    experiment = int(opened.create_experiment("history"))
    rng = random.Random(0)
    ids = [f"{rng.getrandbits(128):032x}" for _ in range(runs)]
    rows: dict[Any, Iterator[dict[str, Any]]] = {
        models.SqlRun: (_run(key, place, experiment) for place, key in enumerate(ids)),
        models.SqlParam: _params(rng, ids),
        models.SqlMetric: _metrics(0, ids),
        models.SqlLatestMetric: _metrics(0, ids),
    }
    with opened.engine.begin() as connection:
        for model, told in rows.items():
            while chunk := list(islice(told, 20_000)):
                connection.execute(insert(model), chunk)
    return experiment


def _run(key: str, place: int, experiment: int) -> dict[str, Any]:
    at = STARTED + 10_000 * place
    told = {"run_uuid": key, "name": f"run {place}", "experiment_id": experiment, "status": "FINISHED"}
    told |= {"start_time": at, "end_time": at + 10_000, "lifecycle_stage": "active", "source_type": "LOCAL"}
    return told | {"user_id": "benchmark", "artifact_uri": f"/nonexistent/{key}"}


def _params(rng: random.Random, ids: list[str]) -> Iterator[dict[str, Any]]:
    for key in ids:
        number = rng.randrange(1000)
        for place in range(KNOBS):
            yield {"run_uuid": key, "key": f"k{place:02}", "value": str(number * (place + 7) % 97)}


def _metrics(seed: int, ids: list[str]) -> Iterator[dict[str, Any]]:
    draw = random.Random(seed).random
    for key in ids:
        for place in range(METRICS):
            yield {
                "run_uuid": key, "key": f"m{place:02}", "value": draw(), "timestamp": STARTED, "step": 0,
                "is_nan": False,
            }  # fmt: skip


if __name__ == "__main__":
    main()
