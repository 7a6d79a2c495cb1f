"""The home page: a file leads to its answer on the chosen device; the last answer, nights and hosts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from django.utils.html import strip_tags

from tests.webapp.cast import Cast, experiment, experiment_with, ready, run, signed_in
from webapp.accounts import last_answer
from webapp.artifacts.models import Artifact
from webapp.hosts.models import Host
from webapp.nightly import services
from webapp.nightly.models import Night, Schedule
from webapp.nightly.recent import trends_of
from webapp.runs.models import RunDocument


def test_a_file_dropped_at_home_leads_to_its_page_with_the_chosen_device(cast: Cast) -> None:
    """Without a script too; several files lead to the list, for none of them is the one."""
    client = signed_in(cast.max)
    page = client.get(cast.url()).content.decode()
    assert 'data-lead="devices"' in page and '<option value="rtx-4090-24g" selected>' in page
    files = [SimpleUploadedFile(name, b'{"model_type": "gpt2"}' + b" " * n) for n, name in enumerate("ab")]
    answer = client.post(cast.url("artifacts/upload"), {"files": files[:1], "devices": "t4&x"})
    made = Artifact.objects.get()
    assert answer.headers["Location"] == cast.url(f"artifacts/{made.pk}/") + "?devices=t4%26x"
    answer = client.post(cast.url("artifacts/upload"), {"files": files[1:] * 2, "devices": "t4"})
    assert answer.headers["Location"] == cast.url("artifacts/")
    assert (
        f'hx-get="{cast.url(f"artifacts/{made.pk}/")}?devices=t4"'
        in client.get(cast.url(f"artifacts/{made.pk}/") + "?devices=t4").content.decode()
    )


def test_a_viewer_sees_the_drop_zone_disabled_with_the_reason(cast: Cast) -> None:
    page = signed_in(cast.vera).get(cast.url()).content.decode()
    assert 'disabled aria-describedby="why-not"' in page and "Your role in this team is viewer" in page


def test_the_last_answer_is_of_the_newest_experiment_that_has_ended(cast: Cast) -> None:
    """One that still runs, and one without any figure, are passed over."""
    client = signed_in(cast.max)
    assert b"No experiment has ended yet" in client.get(cast.url()).content
    made = experiment(cast.project, "both fit")
    model = ready(cast.project)
    for policy, seconds in (("vdnn-all", 2.0), ("baseline", 1.0)):
        run(made, policy, {"step_time": seconds, "peak_memory": 2.0**30 * seconds}, artifact=model)
    experiment_with(cast.project, model, succeeded=1, running=1)
    experiment_with(cast.project, model, infeasible=2)
    page = client.get(cast.url()).content.decode()
    told = strip_tags(page.split('<p class="last">')[1].split("</p>")[0])
    assert "gpt2" in told and "1 s" in told.replace("\xa0", " ")
    assert 'id="last-answer"' in page and "2 of 2 with figures" in page
    assert page.index("2 do not fit") < page.index("1 running") < page.index("both fit</a>")
    assert '<rect class="part-infeasible" x="0" width="2" height="1"/>' in page


def test_the_last_answer_follows_what_it_stands_on(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept from one visit to the next, and worked out anew when another experiment has ended, the workload
    is gone or the experiment is in the trash; experiments are read one at a time here.
    """
    monkeypatch.setattr(last_answer, "READ_AT_ONCE", 1)
    client = signed_in(cast.max)
    for name in ("first", "second"):
        made = experiment(cast.project, f"the {name}")
        model = ready(cast.project, name=f"model of the {name}")
        for policy, seconds in (("vdnn-all", 2.0), ("baseline", 1.0)):
            run(made, policy, {"step_time": seconds, "peak_memory": 2.0**30 * seconds}, artifact=model)
        experiment_with(cast.project, model, infeasible=2)
        for _ in range(2):
            assert f"model of the {name}" in _told(client.get(cast.url()).content.decode())
    made.runs.update(artifact=None)
    assert "model of the second" not in _told(client.get(cast.url()).content.decode())
    made.trashed_at = timezone.now()
    made.save()
    assert "model of the first" in _told(client.get(cast.url()).content.decode())


def _told(page: str) -> str:
    return strip_tags(page.split('<p class="last">')[1].split("</p>")[0])


def test_a_host_that_is_away_says_since_when(cast: Cast) -> None:
    Host.objects.create(name="here", slots=2, cores=4)
    Host.objects.create(name="gone", heartbeat_at=timezone.now() - timedelta(hours=3))
    page = signed_in(cast.vera).get(cast.url()).content.decode()
    assert page.index(">here</a>") < page.index(">gone</a>")
    assert "idle" in page and "last heard of" in page and "✗</span> away" in page


@pytest.fixture
def nightly(cast: Cast) -> Schedule:
    return services.create_schedule(cast.project, cast.max, "memory-gpt2", 2, 0)


def test_nights_are_small_lines_with_what_came_before_and_after(cast: Cast, nightly: Schedule) -> None:
    """Six nights of 2 s, then six of 3 s: the step stands there; the peak, always equal, is steady."""
    client = signed_in(cast.vera)
    assert b"No night has brought a figure yet" in client.get(cast.url("nightly/recent")).content
    begun = timezone.now() - timedelta(days=20)
    for night in range(12):
        made = experiment(cast.project)
        Night.objects.create(schedule=nightly, slot=begun + timedelta(days=night), experiment=made)
        values = {"step_time": 2.0 + (night > 5), "peak_memory": 7.0}
        one = run(made, "dtr", values)
        RunDocument.objects.create(run=one, outcome={"provenance": {"revision": "a"}})
    first, second = trends_of(cast.project)[0]
    assert (first.metric, first.before, first.after, first.better, first.change) == (
        "step_time",
        2.0,
        3.0,
        False,
        "+50.0 %",
    )
    assert (second.metric, second.before, second.change) == ("peak_memory", None, "")
    assert first.line.startswith("3.0,25.0 ") and first.end == ("117.0", "3.0")
    page = client.get(cast.url("nightly/recent")).content.decode()
    assert page.count("<polyline") == 2 and '<span class="change worse">+50.0 %</span>' in page
    assert "steady" in page and page.index("step time") < page.index("peak memory")
    home = client.get(cast.url()).content.decode()
    assert (
        "No experiment yet" in home and "No experiment has ended yet" in home
    )  # a night is none of anybody's
