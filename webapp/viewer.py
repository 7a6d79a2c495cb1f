"""Perfetto's viewer on a page of its own, which other pages show in a frame and hand a trace to."""

from __future__ import annotations

from csp.constants import NONE, SELF
from csp.decorators import csp_replace
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

#: What the viewer needs and nothing else: its script, its worker and WebAssembly from here, no other origin.
#: The pages' own policy has none of this.
POLICY = {
    "default-src": [NONE],
    "script-src": [SELF, "'wasm-unsafe-eval'"],
    "worker-src": [SELF],
    "connect-src": [SELF],
    "style-src": [SELF, "'unsafe-inline'"],
    "font-src": [SELF],
    "img-src": [SELF, "data:", "blob:"],
    "frame-ancestors": [SELF],
    "base-uri": [NONE],
    "form-action": [NONE],
    "object-src": [NONE],
}


@require_safe
@login_required
@xframe_options_sameorigin
@csp_replace(POLICY)
def viewer(request: HttpRequest) -> HttpResponse:
    return render(request, "viewer/perfetto.html")
