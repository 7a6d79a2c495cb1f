"""Pages of artifacts: the list, uploading, one artifact."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.reading import families_reading
from webapp.accounts.access import ProjectRequest, in_project
from webapp.artifacts import cards, fit, services, steps, uploads
from webapp.artifacts.forms import (
    ArtifactFilter,
    BeginUploadForm,
    GeneratedForm,
    ProfileForm,
    SampleForm,
    TryAllForm,
    UploadForm,
    ZooForm,
)
from webapp.artifacts.generated import TRACES, USUAL_DEVICE
from webapp.artifacts.models import Artifact, Upload
from webapp.artifacts.profile import page as profile_page
from webapp.artifacts.samples import SAMPLES
from webapp.artifacts.sending import attachment
from webapp.artifacts.tables import ArtifactTable
from webapp.artifacts.workloads import job_groups, jobs, requests
from webapp.compare.listing import asked_export
from webapp.navigation import project_url
from webapp.runs.tables import RunTable

#: Formats that Perfetto opens as they are.
TIMELINES = ("kineto",)


def _artifact(request: ProjectRequest, artifact: int) -> Artifact:
    return get_object_or_404(Artifact.objects.of(request.project).select_related("blob"), pk=artifact)


@require_safe
@in_project(exports=True)
def index(request: ProjectRequest) -> HttpResponseBase:
    chosen = ArtifactFilter(request.GET, Artifact.objects.of(request.project).for_list())
    table = ArtifactTable(chosen.qs, request, fields=chosen.form)
    return asked_export(request, table) or render(request, "artifacts/index.html", {"table": table})


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def upload(request: ProjectRequest) -> HttpResponse:
    """The drop zone; a POST stores files. With htmx's header the answer is one row for each."""
    form = UploadForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        files = form.cleaned_data["files"]
        stored = [services.store_upload(request.project, request.user, file.name, file) for file in files]
        if request.htmx:
            return render(request, "artifacts/fates.html", {"artifacts": stored}, status=201)
        if len(stored) == 1 and "devices" in request.POST:
            url = project_url(request.project, "artifacts:artifact", artifact=stored[0].pk)
            return redirect(f"{url}?{urlencode({'devices': request.POST['devices']})}")
        return redirect(project_url(request.project, "artifacts:index"))
    if request.method == "POST" and request.htmx:
        return render(request, "artifacts/upload_errors.html", {"form": form}, status=422)
    page = {
        "form": form,
        "zoo": ZooForm(),
        "samples": SAMPLES.values(),
        "drawn": TRACES,
        "cap": settings.UPLOAD_MAX_BYTES,
        "chunk": uploads.CHUNK,
        "unfinished": uploads.unfinished_uploads(request.project, request.user),
        "kept_days": uploads.KEPT.days,
    }
    return render(request, "artifacts/upload.html", page, status=422 if request.method == "POST" else 200)


@require_POST
@in_project()
def begin_upload(request: ProjectRequest) -> HttpResponse:
    """A place for a large file, or the one where its first part already lies; the header says at which byte
    to go on.
    """
    form = BeginUploadForm(request.POST)
    if not form.is_valid():
        return HttpResponse("name, size and fingerprint are needed", status=422)
    asked = form.cleaned_data
    try:
        made = uploads.begin(
            request.project, request.user, asked["name"], asked["size"], asked["fingerprint"]
        )
    except uploads.Refused as refusal:
        return HttpResponse(str(refusal), status=422)
    answer = _offset(uploads.standing(made), 201)
    answer["Location"] = project_url(request.project, "artifacts:upload_part", upload=made.pk)
    return answer


def _offset(received: int, status: int) -> HttpResponse:
    return HttpResponse(status=status, headers={"Upload-Offset": str(received)})


@require_http_methods(["GET", "HEAD", "PATCH", "DELETE"])
@in_project()
def upload_part(request: ProjectRequest, upload: UUID) -> HttpResponse:
    """HEAD tells at which byte to go on, PATCH sends a chunk from there, DELETE gives up; GET shows what it
    became.
    """
    own = Upload.objects.filter(project=request.project, user=request.user)
    found = get_object_or_404(own.select_related("artifact__blob"), pk=upload)
    if request.method == "PATCH":
        return _append(request, found)
    if request.method == "DELETE":
        uploads.discard(found)
        return HttpResponse(status=204)
    if found.artifact is None or request.method == "HEAD":
        return _offset(uploads.standing(found), 200)
    return render(request, "artifacts/fates.html", {"artifacts": [found.artifact]})


def _append(request: ProjectRequest, upload: Upload) -> HttpResponse:
    """409 with the right offset where the chunk begins elsewhere; 201 and its row when the file
    is complete.
    """
    offset = request.headers.get("Upload-Offset", "")
    if not offset.isdecimal() or len(offset) > 18:
        return HttpResponse("the header Upload-Offset is needed", status=422)
    try:
        found = uploads.append(upload, int(offset), request.body)
    except uploads.WrongOffset as wrong:
        return _offset(wrong.received, 409)
    except uploads.Refused as refusal:
        return HttpResponse(str(refusal), status=422)
    if found.artifact is None:
        return _offset(found.received, 204)
    return render(request, "artifacts/fates.html", {"artifacts": [found.artifact]}, status=201)


@require_safe
@in_project()
def fate(request: ProjectRequest, artifact: int) -> HttpResponse:
    """One row of the upload list, asked for again until the file is ready or rejected."""
    return render(request, "artifacts/fates.html", {"artifacts": [_artifact(request, artifact)]})


@require_POST
@in_project()
def add_zoo(request: ProjectRequest) -> HttpResponse:
    form = ZooForm(request.POST)
    if not form.is_valid():
        raise Http404("no such model in the zoo")
    made = services.add_zoo(request.project, request.user, form.cleaned_data["zoo"])
    return redirect(project_url(request.project, "artifacts:artifact", artifact=made.pk))


@require_POST
@in_project()
def add_sample(request: ProjectRequest) -> HttpResponse:
    form = SampleForm(request.POST)
    if not form.is_valid():
        raise Http404("no such sample")
    sample = SAMPLES[form.cleaned_data["sample"]]
    made = services.add_sample(request.project, request.user, sample.file_name, sample.content())
    return redirect(project_url(request.project, "artifacts:artifact", artifact=made.pk))


@require_POST
@in_project()
def add_generated(request: ProjectRequest) -> HttpResponse:
    """A trace that runs draw from their seeds; the page of a new experiment goes on with it."""
    form = GeneratedForm(request.POST)
    if not form.is_valid():
        raise Http404("no such trace is drawn")
    made = services.add_generated(request.project, request.user, form.cleaned_data["trace"])
    if "family" not in request.POST:
        return redirect(project_url(request.project, "artifacts:artifact", artifact=made.pk))
    asked = {"artifact": made.pk, "family": "serving"}
    if made.kind == "jobs":
        asked |= {"family": "cluster", "cluster_device": USUAL_DEVICE}
    return redirect(f"{project_url(request.project, 'runs:new')}?{urlencode(asked)}")


@require_safe
@in_project(exports=True)
def artifact(request: ProjectRequest, artifact: int) -> HttpResponseBase:
    page = _page(request, _artifact(request, artifact), ProfileForm())
    profiled = page["profile_page"].listings if page["profile_page"] else ()
    return asked_export(request, page["runs"], *profiled) or render(request, "artifacts/artifact.html", page)


@require_safe
@in_project()
def fit_parts(request: ProjectRequest, artifact: int) -> HttpResponse:
    """What moves with the sliders: the answer, and the figures that stand under them."""
    return _fit_parts(request, _artifact(request, artifact))


def _fit_parts(request: ProjectRequest, found: Artifact) -> HttpResponse:
    answer = fit.fit_of(found, request.GET.dict())
    if answer is None:
        raise Http404("nothing is known of its parameters")
    return render(request, "artifacts/fit_parts.html", {"artifact": found, "fit": answer, "moved": True})


@require_POST
@in_project()
def capture(request: ProjectRequest, artifact: int) -> HttpResponse:
    """Captures the step that the address asks for, unless it is known or under way; answers with what moves
    with the sliders.
    """
    found = _artifact(request, artifact)
    if found.state == Artifact.State.READY and found.kind == "model":
        services.capture(found, request.user, fit.read_options(found, request.GET.dict()))
    return _fit_parts(request, found)


def _page(request: ProjectRequest, found: Artifact, profile: ProfileForm) -> dict[str, Any]:
    runs = found.runs.filter(kind="policy").select_related("experiment", "host", "artifact")
    families = families_reading(found.kind)
    answer, parameters = fit.fit_of(found, request.GET.dict()), fit.parameters_of(found)
    return {
        "fit": answer,
        "profile_page": profile_page.page_of(found, request),
        "has_timeline": found.format in TIMELINES and found.blob is not None,
        "demand": jobs.demand_of(found, request.GET.dict()),
        "groups": job_groups.groups_of(found),
        "load": requests.load_of(found, request.GET.dict()),
        "parameters": parameters,
        "total_parameters": sum(row.parameters for row in parameters),
        "artifact": found,
        "card": cards.card_of(found),
        "runs": RunTable(runs, request, prefix="runs-", title=f"Runs on {found.name}", per_page=20),
        "steps": steps.steps_of(found),
        "pending": found.runs.exclude(kind__in=("policy", "advise")).exclude(
            state__in=("succeeded", "cancelled")
        ),
        "profile": profile,
        "presets": [family for family in families if family not in ("compilation", "memory")],
        "try_all": _try_all(found, answer) if "memory" in families else None,
    }


def _try_all(found: Artifact, answer: fit.Fit | None) -> TryAllForm:
    """The preset, filled with what the answer is about."""
    asked: dict[str, Any] = {}
    if answer is not None:
        said = {f"option:{name}": answer.options.get(name) for name in fit.ASKED}
        asked = {"devices": answer.device, **said, fit.TRAINED: answer.trained}
    return TryAllForm(found.kind, auto_id="try-%s", initial=asked)


@require_safe
@in_project()
def timeline(request: ProjectRequest, artifact: int) -> HttpResponse:
    """An uploaded profiler trace in Perfetto's viewer."""
    found = _artifact(request, artifact)
    if found.format not in TIMELINES or found.blob is None:
        raise Http404("not a trace of a profiler")
    of = {"artifact": found.pk}
    back = (project_url(request.project, "artifacts:artifact", **of), found.name)
    trace_url = project_url(request.project, "artifacts:download", **of)
    return render(request, "viewer/timeline.html", {"back": back, "trace_url": trace_url})


@require_safe
@in_project()
def download(request: ProjectRequest, artifact: int) -> StreamingHttpResponse:
    """The bytes as they came."""
    found = _artifact(request, artifact)
    if found.blob is None:
        raise Http404("a model of the zoo has no file")
    return attachment(found.blob, found.name)


@require_POST
@in_project()
def profile(request: ProjectRequest, artifact: int) -> HttpResponse:
    """Times the ops of the model's step on a host; its runs use the result from then on."""
    found, form = _artifact(request, artifact), ProfileForm(request.POST)
    if found.state != Artifact.State.READY or found.kind != "model":
        raise Http404("only a ready model is profiled")
    if not form.is_valid():
        return render(request, "artifacts/artifact.html", _page(request, found, form), status=422)
    asked = form.cleaned_data
    run = services.profile(found, request.user, asked["device"], asked["options"])
    return redirect(project_url(request.project, "runs:run", run=run.pk))


@require_POST
@in_project()
def trash(request: ProjectRequest, artifact: int) -> HttpResponse:
    found = _artifact(request, artifact)
    services.trash(found)
    messages.success(request, f"{found.name} is in the trash of the team. Its runs stay.")
    return redirect(project_url(request.project, "artifacts:index"))
