"""The papers of the systems that a report's tables name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.core import registry
from experiments.core.paper import Paper
from experiments.core.policy import FAMILIES
from webapp.compare.export_table import Table

#: The column in which a table names its policies.
POLICY = "policy"


def bibtex_of(tables: Iterable[Table]) -> str:
    """A BibTeX file: an entry for each paper, in the order of their keys."""
    named = {name for table in tables for name in _policies(table)}
    papers = {paper.key: paper for name in named for paper in _papers(name)}
    return "\n\n".join(papers[key].bibtex() for key in sorted(papers)) + "\n" if papers else ""


def _policies(table: Table) -> Iterator[str]:
    """Of its rows, or said once above them."""
    for place, column in enumerate(table.columns):
        if column.label == POLICY:
            yield from (str(row[place]) for row in table.rows)
    yield from (value for label, value in table.constants if label == POLICY)


def _papers(name: str) -> Iterator[Paper]:
    """What is cited for the policies of that name, whatever family they are of."""
    for family in FAMILIES:
        policy = registry.family_policies(family).get(name)
        paper = registry.sheet(policy).paper if policy else None
        if paper:
            yield paper
