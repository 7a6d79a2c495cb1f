"""The table of walks: clicks, keys and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.webapp.walks.walker import Mark, Walker

HEAD = f"{'walk':<74} {'clicks':>8} {'keys':>5} {'seconds':>8} {'wanted':>7} {'processor':>10}"


def lines_of(walks: Mapping[str, Walker]) -> Iterator[str]:
    """A line for each walk, and below it one for each thing that was waited for."""
    yield ""
    yield HEAD
    for name, walk in walks.items():
        clicks = f"{walk.clicks} of {walk.most}" if walk.most else str(walk.clicks)
        yield f"{name:<74} {clicks:>8} {walk.keys:>5}"
        for mark in walk.marks:
            yield _line_of(mark)


def _line_of(mark: Mark) -> str:
    wanted = f"{mark.wanted:g}" if mark.wanted else ""
    return f"    {mark.what:<84} {mark.seconds:>8.1f} {wanted:>7} {mark.processor_seconds:>10.1f}"
