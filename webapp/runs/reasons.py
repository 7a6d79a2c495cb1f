"""Why a run has no answer, as its page says it: bytes in units, files by name, moments in local time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.presentation import figure, with_local_times
from webapp.runs.models import Run

#: Bytes as reasons spell them: ``106558724 bytes``, ``146800640 more bytes``, and, with what is said again in
#: brackets, ``missing of 25769803776 (102 MiB of 24 GiB)``.
BYTES = re.compile(
    r"\b(?P<size>\d{4,})(?P<more> more)?(?: bytes)\b"
    r"|(?<=missing of )(?P<whole>\d{4,})\b(?: \([^()]*iB\))?"
)
#: A file's hash, whole or as long as it is shown.
SHORTEST_HASH = 12


def reason_in_words(run: Run) -> SafeString:
    """The run's reason; sizes have their exact value on hover."""
    return format_html_join("", "{}{}", _sizes(_with_names(run)))


def _with_names(run: Run) -> str:
    """The name of the uploaded file in the place of its hash."""
    if run.artifact is None or not run.artifact.blob_id:
        return run.reason
    digest = str(run.artifact.blob_id)
    found = re.compile(rf"\b{digest[:SHORTEST_HASH]}(?:{digest[SHORTEST_HASH:]})?\b")
    return found.sub(lambda _: run.artifact.name if run.artifact else "", run.reason)


def _sizes(text: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of what stands before a size and the size, the last with none."""
    begin = 0
    for found in BYTES.finditer(text):
        size = figure(float(found["size"] or found["whole"]), "bytes")
        yield with_local_times(text[begin : found.start()]), format_html("{}{}", size, found["more"] or "")
        begin = found.end()
    yield with_local_times(text[begin:]), ""
