"""Uploading, what becomes of a file, and the artifact's page."""

from __future__ import annotations

import hashlib
import re

from asgiref.sync import async_to_sync
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import StreamingHttpResponse

from experiments.readers.base import reader_for
from tests.webapp.cast import Cast, ready, signed_in
from webapp.artifacts.cards import card_of
from webapp.artifacts.models import Artifact
from webapp.artifacts.samples import SAMPLES
from webapp.artifacts.sending import CHUNK
from webapp.artifacts.services import store_upload


def file(name: str = "config.json", content: bytes = b'{"n_embd": 768}') -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def test_several_files_are_stored_under_their_hash_and_wait_for_a_worker(cast: Cast) -> None:
    files = {"files": [file("a.json"), file("b.json", b"{}"), file("../../etc/passwd", b"x")]}
    answer = signed_in(cast.max).post(cast.url("artifacts/upload"), files, HTTP_HX_REQUEST="true")
    assert answer.status_code == 201
    assert answer.content.count(b"<tr") == 3
    made = Artifact.objects.order_by("id")
    assert [a.name for a in made] == ["a.json", "b.json", "passwd"]
    assert {a.state for a in made} == {"waiting"}
    assert made[0].blob_id == hashlib.sha256(b'{"n_embd": 768}').hexdigest()
    assert [a.runs.get().kind for a in made] == ["inspect"] * 3


def test_the_same_file_again_is_taken_and_says_which_was_first(cast: Cast) -> None:
    """In the row of the upload and on its page; the first says nothing."""
    client, url = signed_in(cast.max), cast.url("artifacts/upload")
    rows = [client.post(url, {"files": file(n)}, HTTP_HX_REQUEST="true").content.decode() for n in ("a", "b")]
    first, second = Artifact.objects.order_by("pk")
    link = f'The same content as <a href="{cast.url(f"artifacts/{first.pk}/")}">a</a>'
    assert [link in row for row in rows] == [False, True]
    pages = [client.get(cast.url(f"artifacts/{one.pk}/")).content.decode() for one in (first, second)]
    assert [link in page for page in pages] == [False, True]


def test_a_file_over_the_cap_is_refused_before_it_is_stored(cast: Cast, settings) -> None:  # type: ignore[no-untyped-def]
    settings.UPLOAD_MAX_BYTES = 10
    answer = signed_in(cast.max).post(cast.url("artifacts/upload"), {"files": file()}, HTTP_HX_REQUEST="true")
    assert (answer.status_code, answer.content.strip()) == (
        422,
        b"config.json has 15 B; at most 10 B are taken",
    )
    assert not Artifact.objects.exists()


def test_a_viewer_sees_the_upload_page_with_its_forms_disabled_and_why(cast: Cast) -> None:
    page = signed_in(cast.vera).get(cast.url("artifacts/upload"))
    assert b'<fieldset class="contents" disabled aria-describedby="why-not">' in page.content
    assert b"Your role in this team is viewer" in page.content


def test_a_row_follows_its_file_until_it_is_read(cast: Cast) -> None:
    """While it waits the row asks again (hx-trigger); once rejected it says why and asks no more."""
    waiting = Artifact.objects.create(project=cast.project, name="x")
    fate = cast.url(f"artifacts/{waiting.pk}/fate")
    assert b"hx-trigger" in signed_in(cast.vera).get(fate).content
    Artifact.objects.update(state="rejected", reason="line 3: <b>12</b> columns")
    row = signed_in(cast.vera).get(fate).content
    assert b"hx-trigger" not in row
    assert b"line 3: &lt;b&gt;12" in row


def test_a_download_is_an_attachment_whatever_it_contains(cast: Cast) -> None:
    max_ = signed_in(cast.max)
    max_.post(cast.url("artifacts/upload"), {"files": file("page.html", b"<script>alert(1)</script>")})
    answer = max_.get(cast.url(f"artifacts/{Artifact.objects.get().pk}/download"))
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="page.html"'


async def _pieces(answer: StreamingHttpResponse) -> list[bytes]:
    return [piece async for piece in answer]


def test_a_download_comes_in_pieces(cast: Cast) -> None:
    """As the server asks for it: what is not asynchronous would be collected whole in memory first."""
    content = bytes(range(256)) * (CHUNK // 256 * 2 + 1)
    made = store_upload(cast.project, cast.max, "large.bin", ContentFile(content))
    answer = signed_in(cast.vera).get(cast.url(f"artifacts/{made.pk}/download"))
    assert isinstance(answer, StreamingHttpResponse) and answer.is_async
    found = async_to_sync(_pieces)(answer)
    assert [len(piece) for piece in found] == [CHUNK, CHUNK, 256]
    assert b"".join(found) == content and answer["Content-Length"] == str(len(content))


def test_samples_are_what_they_say_and_the_same_every_time() -> None:
    found = {s.name: reader_for(s.content(), s.file_name).kind for s in SAMPLES.values()}
    assert found == {"gpt2": "model", "jobs": "jobs", "requests": "requests"}
    assert all(s.content() == s.content() for s in SAMPLES.values())


def test_a_rule_of_thumb_stands_beside_the_captured_figure(cast: Cast) -> None:
    """The rule says 110, the captured step 100: 1.1."""
    rule = {"name": "parameters", "value": 110, "unit": "parameters", "formula": "f", "source": "s"}
    model = ready(cast.project, summary={"cards": [], "estimates": [rule], "plots": []})
    captured = {"cards": [{"label": "parameters", "value": 100, "unit": ""}], "plots": [], "estimates": []}
    assert card_of(model).estimates[0].ratio is None
    ready(cast.project, "step", "captured", summary=captured, parent=model)
    assert card_of(model).estimates[0].ratio == 1.1
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{model.pk}/"))
    assert b"1.1" in page.content


def test_the_list_filters_and_sorts_by_its_address(cast: Cast) -> None:
    ready(cast.project, name="zebra")
    ready(cast.project, "jobs", name="ant")
    ready(cast.foreign, name="poison")
    page = signed_in(cast.vera).get(cast.url("artifacts/?sort=name")).content.decode()
    assert page.index(">ant<") < page.index(">zebra<")
    assert "poison" not in page
    assert "zebra" not in signed_in(cast.vera).get(cast.url("artifacts/?kind=jobs")).content.decode()
    assert signed_in(cast.vera).get(cast.url("artifacts/?sort=nonsense&page=-3&kind=%01")).status_code == 200


def test_what_is_in_the_trash_is_not_found(cast: Cast) -> None:
    artifact, max_ = ready(cast.project), signed_in(cast.max)
    max_.post(cast.url(f"artifacts/{artifact.pk}/trash"))
    assert max_.get(cast.url(f"artifacts/{artifact.pk}/")).status_code == 404


def test_the_audit_says_who_put_what_into_the_trash(cast: Cast) -> None:
    artifact = ready(cast.project, name="the lost one")
    signed_in(cast.max).post(cast.url(f"artifacts/{artifact.pk}/trash"))
    page = signed_in(cast.vera).get("/t/red/").content.decode()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert ["max", "update", "artifact", "the lost one"] in [cells[i : i + 4] for i in range(len(cells))]
    assert "the lost one" not in signed_in(cast.sly).get("/t/blue/").content.decode()


def test_rules_are_worked_out_at_the_batch_that_was_captured(cast: Cast) -> None:
    """Two layers of 4, vocabulary 8, 4 tokens, batch 3: (6 N + 12 L h s) x 12 tokens with N = 544."""
    shape = {"hidden size": 4, "num hidden layers": 2, "num attention heads": 2, "vocab size": 8}
    cards = [{"label": label, "value": value, "unit": ""} for label, value in shape.items()]
    model = ready(cast.project, summary={"cards": cards, "estimates": [], "plots": []})
    captured = [("batch", 3), ("sequence", 4), ("FLOPs of a step", 43_200)]
    summary = {
        "cards": [{"label": label, "value": value, "unit": ""} for label, value in captured],
        "plots": [],
        "estimates": [],
        "facts": {"dtype": "float32", "timing": "none"},
    }
    ready(cast.project, "step", "captured", summary=summary, parent=model, source="derived")
    rules = {row.estimate["name"]: row for row in card_of(model).estimates}
    parameters = rules["parameters"].estimate["value"]
    assert parameters == 2 * (12 * 16 + 13 * 4) + (8 + 4) * 4 + 2 * 4
    assert rules["training step with attention"].estimate["value"] == (6 * parameters + 12 * 2 * 4 * 4) * 12
    assert rules["training step with attention"].captured == 43_200
