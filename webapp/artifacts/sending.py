"""Stored files as answers: in pieces, so that a file of gigabytes never stands in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from webapp.artifacts.models import Blob
from webapp.artifacts.services import open_blob

CHUNK = 2**20
BYTES = "application/octet-stream"


def attachment(blob: Blob, name: str) -> StreamingHttpResponse:
    """The whole file to keep under ``name``: a browser must not open what somebody uploaded."""
    answer = StreamingHttpResponse(pieces(blob, 0, blob.size), content_type=BYTES)
    answer["Content-Length"] = str(blob.size)
    answer["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name)
    return answer


async def pieces(blob: Blob, first: int, left: int) -> AsyncIterator[bytes]:
    """``left`` bytes from ``first``. Asynchronous: Django collects any other answer whole before it sends."""
    source: IO[bytes] = await sync_to_async(open_blob)(blob)
    try:
        await sync_to_async(source.seek)(first)
        while left > 0 and (chunk := await sync_to_async(source.read)(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    finally:
        await sync_to_async(source.close)()
