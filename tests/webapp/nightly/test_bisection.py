"""The search for a commit: both ends, then halves; what is no code's fault, and what cannot be told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from experiments.core.errors import BadInput
from tests.variants import variants
from tests.webapp.cast import Place, place, ready
from tests.webapp.nightly.repositories import commits
from tests.webapp.nightly.test_alerts import SLOT, SUITE
from webapp.accounts.models import Role
from webapp.nightly import bisection, services
from webapp.nightly.models import Bisection, Change, Schedule
from webapp.runs.models import Experiment, Run, RunMetric
from webapp.runs.trashing import put_into_trash

State = Bisection.State
COUNT = 40


@pytest.fixture
def ada(db: None) -> Place:
    return place("ada", Role.ADMIN)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[str]]:
    """Forty commits that change the package, with others between that do not; and those that do."""
    root = tmp_path_factory.mktemp("bisection") / "checkout"

    def change(number: int) -> None:
        for name in ("experiments", "docs"):
            (root / name).mkdir(exist_ok=True)
        part = "experiments" if number % 2 == 0 else "docs"
        (root / part / "x.txt").write_text(str(number))

    return root, commits(root, 2 * COUNT, change)[::2]


@pytest.fixture
def revisions(checkout: tuple[Path, Sequence[str]], settings: Any) -> Sequence[str]:
    settings.CODE_ROOT, found = checkout
    return found


@pytest.fixture
def nightly(ada: Place) -> Schedule:
    return services.create_schedule(ada.project, ada.user, SUITE, 2, 0)


def step_of(ada: Place, nightly: Schedule, revisions: Sequence[str], mode: str = "simulated") -> Change:
    experiment = Experiment.objects.create(project=ada.project, name="a night")
    model = ready(ada.project)
    spec = {"family": "memory", "policy": "baseline", "knobs": {}, "mode": mode, "seed": 0}
    spec |= {"workload": {"format": "auto", "options": {}}, "hardware": "a100-40g"}
    run = Run.objects.create(
        project=ada.project, experiment=experiment, artifact=model, spec=spec, mode=mode, state="succeeded"
    )
    told: dict[str, Any] = {"before": 1.0, "after": 1.5, "better": False, "slot": SLOT, "found_at": SLOT}
    ends = f"{revisions[0][:12]}..{revisions[-1][:12]}"
    return Change.objects.create(
        schedule=nightly, title="t", metric="step_time", suspects=ends, run=run, **told
    )


def carry_out(search: Bisection, gives: Callable[[int], float | None], revisions: Sequence[str]) -> int:
    """Let workers answer until the search has ended; how many runs it took."""
    for _ in range(50):
        assert search.experiment is not None
        for run in search.experiment.runs.filter(state="queued"):
            value = gives(revisions.index(run.revision))
            if value is not None:
                RunMetric.objects.create(run=run, name="step_time", value=value)
            Run.objects.filter(pk=run.pk).update(state="failed" if value is None else "succeeded")
        bisection.go_on()
        search.refresh_from_db()
        if search.state != State.RUNNING:
            return search.experiment.runs.count()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("first", variants(1, 39, 2, 17, 38, kept=2))
def test_the_commit_is_found_in_as_many_halves_as_it_takes(
    ada: Place, nightly: Schedule, revisions: Sequence[str], first: int
) -> None:
    search = bisection.begin(step_of(ada, nightly, revisions), ada.user)
    assert search.revisions == list(revisions)
    took = carry_out(search, lambda place: 1.5 if place >= first else 1.01, revisions)
    assert (search.state, search.found) == (State.FOUND, revisions[first])
    assert took <= 2 + math.ceil(math.log2(COUNT))
    (found,) = (probe for probe in bisection.probes_of(search) if probe.is_found)
    assert (found.commit.subject, found.verdict, found.value) == (f"commit {2 * first}", "new", 1.5)


@pytest.mark.parametrize("value", [1.0, 1.5])
def test_ends_that_do_not_differ_clear_the_code(
    ada: Place, nightly: Schedule, revisions: Sequence[str], value: float
) -> None:
    search = bisection.begin(step_of(ada, nightly, revisions), ada.user)
    assert carry_out(search, lambda _: value, revisions) == 2
    assert (search.state, search.found) == (State.NOT_CODE, "")


def test_revisions_without_a_figure_are_passed_over(
    ada: Place, nightly: Schedule, revisions: Sequence[str]
) -> None:
    def gives(place: int) -> float | None:
        return None if 15 <= place < 20 else 1.5 if place >= 25 else 1.0

    search = bisection.begin(step_of(ada, nightly, revisions), ada.user)
    carry_out(search, gives, revisions)
    assert (search.state, search.found) == (State.FOUND, revisions[25])
    again = bisection.begin(search.change, ada.user)
    carry_out(again, lambda place: None if 15 <= place < 20 else 1.5 if place >= 18 else 1.0, revisions)
    assert (again.state, again.found) == (State.UNCLEAR, revisions[20])
    last = bisection.begin(search.change, ada.user)
    assert carry_out(last, lambda place: None if place == 0 else 1.0, revisions) == 2
    assert last.state == State.FAILED


def test_measured_figures_are_repeated_and_a_median_counts(
    ada: Place, nightly: Schedule, revisions: Sequence[str]
) -> None:
    draws = iter([1.0, 9.0, 1.02] * 100)
    search = bisection.begin(step_of(ada, nightly, revisions, "measured"), ada.user)
    assert search.experiment is not None and search.experiment.runs.count() == 6
    carry_out(search, lambda place: 1.5 if place >= 30 else next(draws), revisions)
    assert (search.state, search.found) == (State.FOUND, revisions[30])


def test_what_cannot_be_searched_says_why(ada: Place, nightly: Schedule, revisions: Sequence[str]) -> None:
    change = step_of(ada, nightly, revisions)
    change.suspects = f"{revisions[3][:12]} both times, not the code"
    with pytest.raises(BadInput, match="no such range"):
        bisection.begin(change, ada.user)
    change.suspects = f"{revisions[3][:12]}..{revisions[3][:12]}"
    with pytest.raises(BadInput, match="no commit of the range"):
        bisection.begin(change, ada.user)
    change.run = None
    with pytest.raises(BadInput, match="is gone"):
        bisection.begin(change, ada.user)


def test_it_is_begun_watched_and_read_on_the_changes_page(
    ada: Place, nightly: Schedule, revisions: Sequence[str], client: Client
) -> None:
    client.force_login(ada.user, backend="django.contrib.auth.backends.ModelBackend")
    change = step_of(ada, nightly, revisions)
    address = ada.url(f"nightly/changes/{change.pk}/")
    assert "Find the commit" in client.get(address).content.decode()
    assert client.post(f"{address}bisect").status_code == 302
    page = client.post(f"{address}bisect", follow=True).content.decode()
    assert "being looked for already" in page and "Searching: 40 revisions" in page
    search = change.bisections.get()
    carry_out(search, lambda place: 1.5 if place >= 7 else 1.0, revisions)
    page = client.get(address).content.decode()
    assert revisions[7][:12] in page and "It began with" in page and "commit 14" in page
    assert page.count("the new figure") + page.count("the old figure") == search.experiment.runs.count()


def test_two_searches_of_a_change_do_not_run_at_once(
    ada: Place, nightly: Schedule, revisions: Sequence[str]
) -> None:
    change = step_of(ada, nightly, revisions)
    bisection.begin(change, ada.user)
    with pytest.raises(BadInput, match="looked for already"):
        bisection.begin(change, ada.user)


def test_a_search_whose_runs_were_thrown_away_goes_on_and_one_without_experiment_ends(
    ada: Place, nightly: Schedule, revisions: Sequence[str]
) -> None:
    search = bisection.begin(step_of(ada, nightly, revisions), ada.user)
    assert search.experiment is not None
    for run in search.experiment.runs.all():
        value = 1.5 if run.revision == revisions[-1] else 1.0
        RunMetric.objects.create(run=run, name="step_time", value=value)
    search.experiment.runs.update(state="succeeded")
    put_into_trash(ada.project, search.experiment.runs.all(), ada.user)
    bisection.go_on()
    search.refresh_from_db()
    assert (search.state, search.experiment.runs.count()) == (State.RUNNING, 1)
    search.experiment.delete()
    bisection.go_on()
    search.refresh_from_db()
    assert search.state == State.FAILED
