"""What should I do: asked once, searched by a worker, kept, shown with its reasons, and launched as runs."""

from __future__ import annotations

import re

import pytest

from tests.webapp.advice.answers import QUESTION, answer
from tests.webapp.cast import Cast, place, ready, signed_in
from webapp.advice import services
from webapp.advice.forms import address_of
from webapp.advice.models import Advice
from webapp.runs.models import Experiment, Run

pytestmark = pytest.mark.django_db
ASKED = {"hardware": "dgx-h100", "nodes": "1", "batch": "128", "margin": "10", "goal": "time"}


def test_a_question_is_searched_once_and_its_link_answers_at_once(cast: Cast) -> None:
    model, max_ = ready(cast.project, name="llama2-7b"), signed_in(cast.max)
    asked = {**ASKED, "artifact": str(model.pk)}
    told = max_.post(cast.url("advise/"), asked)
    assert told.status_code == 302
    advice, run = Advice.objects.get(), Run.objects.get()
    assert (run.kind, run.state, run.spec["question"]) == ("advise", "queued", QUESTION)
    assert advice.question == QUESTION
    again = max_.post(cast.url("advise/"), asked)
    assert (again.url, Run.objects.count()) == (told.url, 1)
    assert {key: str(value) for key, value in address_of(advice).items()} == {
        **ASKED,
        "artifact": str(model.pk),
    }

    waiting = signed_in(cast.vera).get(told.url).content.decode()
    assert "Waiting for a worker" in waiting and "hx-trigger" in waiting
    Run.objects.update(state="succeeded")
    services.keep_answer(run, answer())
    shown = signed_in(cast.vera).get(told.url).content.decode()
    assert "<strong>Divide gradients over the 8 GPUs:</strong> 7 s a step" in shown
    assert "C is 2 % faster and leaves 4 GiB" in shown
    assert "not validated on this device" in shown
    assert "<strong>Gradients are divided.</strong> It frees 86 GiB a GPU." in shown
    assert "&lt;b&gt;plan&lt;/b&gt; A" in shown and "<b>plan</b>" not in shown
    assert re.search(r"Never evaluated</th><td[^>]*><span[^>]*>40</span></td>", shown)
    assert all(f'id="settings-{number}"' in shown for number in (1, 2, 3))
    assert "zoo:llama2-7b --hardware dgx-h100 --batch 128 --goal time --margin 0.1" in shown
    assert "Launch the 2 runs" not in shown, "a viewer launches nothing"
    assert "Launch the 2 runs" in max_.get(told.url).content.decode()


def test_the_runs_behind_an_answer_are_an_experiment(cast: Cast) -> None:
    model, max_ = ready(cast.project, name="llama2-7b"), signed_in(cast.max)
    advice = Advice.objects.create(
        project=cast.project, artifact=model, question=QUESTION, key="k" * 64, answer=answer()
    )
    address = cast.url(f"advise/{advice.pk}/launch")
    assert signed_in(cast.vera).post(address).status_code == 403
    assert signed_in(cast.sly).post(address).status_code == 404
    told = max_.post(address)
    made = Experiment.objects.get()
    assert told.url.endswith(f"experiments/{made.pk}/")
    runs = list(made.runs.order_by("spec__knobs__stage"))
    assert [run.spec["knobs"] for run in runs] == [{"stage": 2}, {"stage": 3}]
    assert {run.spec["workload"]["source"] for run in runs} == {f"artifact:{model.pk}"}


def test_a_search_that_failed_says_why_and_is_asked_again(cast: Cast) -> None:
    model, max_ = ready(cast.project, name="llama2-7b"), signed_in(cast.max)
    address = max_.post(cast.url("advise/"), {**ASKED, "artifact": str(model.pk)}).url
    Run.objects.update(state="failed", reason="took longer than 900 s")
    shown = max_.get(address).content.decode()
    assert "No answer:" in shown and "took longer than 900 s" in shown
    url = cast.url(f"advise/{Advice.objects.get().pk}/again")
    again = max_.post(url, headers={"referer": "https://elsewhere.example/"})
    assert again.status_code == 302 and again.url.startswith(cast.url("advise/?"))
    page = max_.get(again.url)
    assert page.context["advice"] == Advice.objects.get() and "No answer:" not in page.content.decode()
    assert sorted(Run.objects.values_list("state", flat=True)) == ["failed", "queued"]


def test_what_fits_in_no_way_is_an_answer_without_plans(cast: Cast) -> None:
    nothing = {**answer(), "finding": "nothing fits: needs 90 GiB", "price": "", "plans": [], "points": []}
    nothing |= {"settings": [], "reasons": [], "rejected": [], "explanation": []}
    model = ready(cast.project, name="llama2-7b")
    advice = services.ask(cast.project, cast.max, model, QUESTION)
    assert advice.run is not None
    services.keep_answer(advice.run, nothing)
    Run.objects.update(state="infeasible")
    page = signed_in(cast.max).get(cast.url("advise/"), {**ASKED, "artifact": model.pk}).content.decode()
    assert "nothing fits: needs 90 GiB" in page
    assert "Launch" not in page


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"nodes": "0"}, "greater than or equal to 1"),
        ({"hardware": "b300"}, "b300 is not one of the available choices"),
        ({"goal": "beauty"}, "beauty is not one of the available choices"),
        ({"batch": "many"}, "Enter a whole number"),
        ({"artifact": "0"}, "not one of the available choices"),
    ],
)
def test_a_wrong_question_keeps_what_was_typed(cast: Cast, changed: dict[str, str], complaint: str) -> None:
    model = ready(cast.project, name="llama2-7b")
    asked = {**ASKED, "artifact": str(model.pk), "sequence": "4321", **changed}
    told = signed_in(cast.max).post(cast.url("advise/"), asked)
    assert told.status_code == 422
    page = told.content.decode()
    assert complaint in page and "4321" in page
    assert not Run.objects.exists()


def test_strangers_models_are_not_asked_about_and_viewers_ask_nothing(cast: Cast) -> None:
    foreign = ready(place("green").project, name="llama2-7b")
    own = ready(cast.project, name="llama2-7b")
    told = signed_in(cast.max).post(cast.url("advise/"), {**ASKED, "artifact": str(foreign.pk)})
    assert told.status_code == 422
    assert (
        signed_in(cast.vera).post(cast.url("advise/"), {**ASKED, "artifact": str(own.pk)}).status_code == 403
    )
    assert "disabled" in signed_in(cast.vera).get(cast.url("advise/")).content.decode()


def test_an_empty_project_says_the_next_step(cast: Cast) -> None:
    assert (
        "There is no model to advise on yet" in signed_in(cast.max).get(cast.url("advise/")).content.decode()
    )
