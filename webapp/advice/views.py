"""The page *What should I do?*: the question in one line, the answer, and the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts.access import ProjectRequest, in_project
from webapp.advice import services
from webapp.advice.answer import shown_answer
from webapp.advice.forms import AskForm, address_of
from webapp.advice.models import Advice
from webapp.navigation import project_url


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def index(request: ProjectRequest) -> HttpResponse:
    """The question of the address with its answer; a POST asks it and leads there."""
    if request.method == "POST":
        return _ask(request)
    asked = AskForm(
        request.project, request.GET if "hardware" in request.GET else None, initial=_initial(request)
    )
    known = (
        services.find_advice(request.project, asked.cleaned_data["artifact"], asked.question)
        if asked.is_valid()
        else None
    )
    return _page(request, asked, known)


def _initial(request: ProjectRequest) -> dict[str, Any]:
    """A link from a model's page names the model alone."""
    return {name: request.GET[name] for name in ("artifact",) if request.GET.get(name)}


def _ask(request: ProjectRequest) -> HttpResponse:
    form = AskForm(request.project, request.POST)
    if not form.is_valid():
        return _page(request, form, None, status=422)
    services.ask(request.project, request.user, form.cleaned_data["artifact"], form.question)
    return _lead_to(request, form.address)


def _lead_to(request: ProjectRequest, address: Mapping[str, Any]) -> HttpResponse:
    """To the page of a question."""
    return redirect(f"{project_url(request.project, 'advice:index')}?{urlencode(address)}")


def _page(request: ProjectRequest, form: AskForm, advice: Advice | None, status: int = 200) -> HttpResponse:
    recent = Advice.objects.filter(project=request.project).exclude(answer={}).select_related("artifact")
    page = {
        "form": form,
        "advice": advice,
        "run": advice.run if advice else None,
        "shown": shown_answer(advice) if advice and advice.answer else None,
        "recent": recent[:5],
    }
    return render(request, "advice/index.html", page, status=status)


def _advice(request: ProjectRequest, advice: int) -> Advice:
    found = Advice.objects.select_related("run", "artifact", "project__team")
    return get_object_or_404(found, pk=advice, project=request.project)


@require_POST
@in_project()
def launch(request: ProjectRequest, advice: int) -> HttpResponse:
    """Start the runs behind the answer's plans; their experiment is opened."""
    made = services.launch(get_object_or_404(_find_answered(request), pk=advice), request.user)
    return redirect(project_url(request.project, "runs:experiment", experiment=made.pk))


def _find_answered(request: ProjectRequest) -> Any:
    return (
        Advice.objects.filter(project=request.project)
        .exclude(answer={})
        .select_related("artifact", "project")
    )


@require_POST
@in_project()
def again(request: ProjectRequest, advice: int) -> HttpResponse:
    """Search anew for a question that was answered or whose search failed."""
    found = _advice(request, advice)
    services.ask_again(found, request.user)
    return _lead_to(request, address_of(found))
