"""What the address of a comparison asks for. The whole state of the page is in it, so that a link can be
shared.

``?column=policy&column=metric.step_time&sort=-metric.step_time&baseline=<run>&unfold=1&figure=scatter&x=step_time&y=peak_memory``
"""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

METRIC = "metric."


@dataclass(frozen=True)
class Choice:
    """Empty where the page decides. What does not exist in the compared runs is passed over by the
    comparison.
    """

    columns: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    baseline: str = ""
    unfold: bool = False
    x: str = ""
    y: str = ""
    bar: str = ""
    by: str = ""
    figure: str = ""


def choice_of(query: QueryDict) -> Choice:
    sort = query.get("sort", "")
    return Choice(
        columns=tuple(dict.fromkeys(query.getlist("column"))),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        baseline=query.get("baseline", ""),
        unfold=query.get("unfold") == "1",
        x=query.get("x", ""),
        y=query.get("y", ""),
        bar=query.get("bar", ""),
        by=query.get("by", ""),
        figure=query.get("figure", ""),
    )
