"""The answer of a comparison: the finding, why the others fell out, and how many have answered."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString

from webapp.accounts.models import Project
from webapp.compare.answers import cluster, compilation, memory, parallel, repeats, serving
from webapp.compare.answers.case import Case, case_of
from webapp.compare.answers.causes import Cause, causes_of
from webapp.compare.answers.words import say_count, strong
from webapp.compare.comparison import Comparison
from webapp.compare.parameters import PRECISION
from webapp.hosts.evidence import SimulatorErrors, shown_error

#: What each family says: its module has ``headline``, ``sentences``, ``ranking`` and ``RANKED_BY``.
FAMILIES = {
    "memory": memory,
    "parallel": parallel,
    "compilation": compilation,
    "cluster": cluster,
    "serving": serving,
}
#: In what the runs of one answer may differ though it is part of the question: it is the axis of the answer.
AXES = {
    "serving": (serving.RATE, serving.SCALE),
    "cluster": (cluster.RATE,),
    "memory": (PRECISION,),
    "parallel": (PRECISION,),
}
#: So many reasons are told in the sentence; the others are below the figure.
TOLD = 3


@dataclass(frozen=True)
class Answer:
    """``headline`` is the finding, ``sentences`` say why; ``causes`` group what fell out."""

    case: Case
    headline: SafeString
    sentences: tuple[SafeString, ...]
    causes: tuple[Cause, ...]

    @property
    def is_final(self) -> bool:
        return not self.case.waiting


def answer_of(comparison: Comparison, project: Project, errors: SimulatorErrors) -> Answer | None:
    """``None`` where the runs were asked different questions, or are of several families or modes."""
    family = FAMILIES.get(comparison.family)
    if family is None or not comparison.mode or len(comparison.lines) < 2 or not _is_one_question(comparison):
        return None
    case = case_of(comparison, project)
    causes = causes_of(case)
    headline = _so_far(case) if case.waiting else family.headline(case)
    told = repeats.sentences(case, family.ranking(case), family.RANKED_BY)
    more = (_tell_fallen(case, causes), _precisions(case), _trust(case, errors))
    sentences = tuple(itertools.chain(family.sentences(case), told, *more))
    return Answer(case, headline, sentences, causes)


def _is_one_question(comparison: Comparison) -> bool:
    free = AXES.get(comparison.family, ())
    asked = {tuple(item for item in entry.question if item[0] not in free) for entry in comparison.entries}
    return len({repr(question) for question in asked}) == 1


def _so_far(case: Case) -> SafeString:
    """While a run that could change it is on its way there is no winner."""
    ended = case.total - len(case.waiting)
    parts = [f"{len(case.done)} with an answer"]
    if case.misfits:
        parts.append(say_count(len(case.misfits), "does not fit", "do not fit"))
    if case.wrong:
        parts.append(f"{len(case.wrong)} without")
    return format_html("{} {}.", strong(f"{ended} of {case.total} so far:"), ", ".join(parts))


def _tell_fallen(case: Case, causes: tuple[Cause, ...]) -> Iterator[SafeString]:
    """``The other 16 fell out: memory runs out at mm_42 (11); other reasons (5)``."""
    if case.waiting or not causes:
        return
    told = [f"{cause.words} ({len(cause.entries)})" for cause in causes[:TOLD]]
    rest = sum(len(cause.entries) for cause in causes[TOLD:])
    told += [f"other reasons ({rest})"] if rest else []
    number = len(case.fallen)
    who = f"The other {number}" if case.done else f"All {number}"
    yield format_html("{} fell out: {}.", who if number > 1 else who.replace(" 1", " one"), "; ".join(told))


def _precisions(case: Case) -> Iterator[SafeString]:
    """Runs in several precisions are compared all the same, and it is said."""
    used = Counter(str(entry.parameters.get(PRECISION)) for entry in case.comparison.entries)
    if len(used) > 1:
        yield format_html(
            "Precisions differ: {}.", ", ".join(f"{n} in {name}" for name, n in used.most_common())
        )


def _trust(case: Case, errors: SimulatorErrors) -> Iterator[SafeString]:
    """What is known of the simulator that says all this."""
    if case.comparison.mode != "simulated":
        return
    error = errors.of(case.comparison.family, case.where)
    if error is None:
        yield format_html("All of it is simulated, and the simulator was not validated on {}.", case.where)
    else:
        yield format_html(
            "All of it is simulated, with a median error of {} on {}.",
            shown_error(error.fraction),
            error.device,
        )
