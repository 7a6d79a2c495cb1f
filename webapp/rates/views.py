"""Asking for the highest rate, and stopping."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from experiments.core.errors import BadInput
from webapp.accounts.access import ProjectRequest, in_project
from webapp.navigation import project_url
from webapp.rates import services
from webapp.rates.forms import RateForm
from webapp.rates.lines import policies_of
from webapp.rates.models import RateStudy
from webapp.runs.models import Experiment


def _experiment(request: ProjectRequest, experiment: UUID) -> Experiment:
    return get_object_or_404(Experiment.objects.not_trashed(), pk=experiment, project=request.project)


@require_POST
@in_project()
def begin(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    found = _experiment(request, experiment)
    form = RateForm(request.POST, policies_of(found))
    if form.is_valid():
        try:
            services.begin(found, request.user, form.goal, form.cleaned_data["policies"])
        except BadInput as error:
            messages.warning(request, f"Not begun: {error.what}.")
    else:
        field, errors = next(iter(form.errors.items()))
        messages.warning(request, f"Not begun: {field}: {errors[0]}")
    return _back(request, found)


@require_POST
@in_project()
def stop(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    found = _experiment(request, experiment)
    services.stop(get_object_or_404(RateStudy, experiment=found))
    return _back(request, found)


def _back(request: ProjectRequest, found: Experiment) -> HttpResponse:
    return redirect(f"{project_url(request.project, 'compare:experiment', experiment=found.pk)}#highest-rate")
