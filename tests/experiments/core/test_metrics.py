"""The catalog of metrics: one line for each name."""

from experiments.core.metrics import _CATALOG, METRICS


def test_no_metric_is_listed_twice() -> None:
    """The surprise: of two lines the later won, and schedulers' preemptions were said to be of KV memory."""
    names = [line.split()[0] for line in _CATALOG.strip().splitlines()]
    assert sorted(names) == sorted(METRICS)
    assert "KV" not in METRICS["preemptions"].label
