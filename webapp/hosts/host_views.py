"""What hosts ask for: to join, the versions they must have, and files by hash in both directions."""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.errors import BadInput
from webapp.api.gate import read_json
from webapp.artifacts import arrivals
from webapp.artifacts.models import Blob
from webapp.artifacts.sending import BYTES, pieces
from webapp.artifacts.uploads import Refused, WrongOffset
from webapp.hosts import editions, joining
from webapp.hosts.gate import HostRequest, for_hosts

RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


@csrf_exempt
@require_POST
def join(request: HttpRequest) -> HttpResponse:
    """Exchange a one-time secret for credentials: ``{"secret": ..., "edition": {name: version}}``."""
    try:
        body = read_json(request)
        secret, edition = str(body["secret"]), {str(n): str(v) for n, v in body["edition"].items()}
        answer = JsonResponse(joining.join(secret, edition))
    except (BadInput, AttributeError, KeyError, TypeError):
        answer = JsonResponse({"detail": "not a request to join"}, status=400)
    except joining.Refused as error:
        answer = JsonResponse({"detail": str(error)}, status=403)
    answer["Cache-Control"] = "no-store"
    return answer


@require_safe
@for_hosts
def hello(request: HostRequest) -> HttpResponse:
    """What the lab runs, for a host to compare itself with."""
    return JsonResponse({"name": request.host.name, "edition": editions.here()})


@require_http_methods(["GET", "HEAD", "PUT"])
@for_hosts
def file(request: HostRequest, sha256: str) -> HttpResponseBase:
    """GET a file or a range of it; PUT a piece of one at ``?offset=`` of ``?size=``."""
    if request.method == "PUT":
        return _take(request, sha256)
    found = arrivals.find_stored(sha256)
    if found is None:
        return JsonResponse({"detail": f"the lab has no file {sha256!r:.80}"}, status=404)
    return _give(request, found)


def _take(request: HostRequest, sha256: str) -> HttpResponse:
    """201 when the whole is stored, 202 while pieces are missing, 409 with where the next one begins."""
    try:
        offset, size = (int(request.GET.get(name, "")) for name in ("offset", "size"))
        stored = arrivals.append(sha256, request.host.role, offset, size, request.body)
    except WrongOffset as error:
        return JsonResponse({"received": error.received}, status=409)
    except (Refused, ValueError) as error:
        return JsonResponse({"detail": str(error)}, status=422)
    return JsonResponse({"received": offset + len(request.body)}, status=201 if stored else 202)


def _give(request: HostRequest, blob: Blob) -> HttpResponseBase:
    first, last, status = 0, blob.size - 1, 200
    if asked := RANGE.fullmatch(request.headers.get("Range", "")):
        first, last, status = int(asked[1]), min(int(asked[2] or last), last), 206
        if not first <= last:
            return HttpResponse(status=416, headers={"Content-Range": f"bytes */{blob.size}"})
    headers = {"Content-Length": str(last - first + 1), "Accept-Ranges": "bytes", "Cache-Control": "no-store"}
    if status == 206:
        headers["Content-Range"] = f"bytes {first}-{last}/{blob.size}"
    left = 0 if request.method == "HEAD" else last - first + 1
    return StreamingHttpResponse(
        pieces(blob, first, left), status=status, headers=headers, content_type=BYTES
    )
