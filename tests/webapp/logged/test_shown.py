"""Tables and pictures of own runs: stored once, told as they are, shown and nothing else."""

from __future__ import annotations

import base64
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from experiments.client import LabError
from experiments.client.own_run import OwnRun
from experiments.client.shown import picture_bytes, plain_table
from experiments.core.errors import BadInput
from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import Place, place, signed_in
from tests.webapp.logged.logs import GRAY, beginning, ending, falling, image, lines, log_lines
from webapp.api.services import make_token
from webapp.logged.models import LoggedImage, LoggedTable
from webapp.logged.pictures import LARGEST_BYTES, read_picture
from webapp.logged.records import read_records


def table(name: str, step: int, rows: list[Any], columns: tuple[str, ...] = ("what", "n")) -> dict[str, Any]:
    return {"table": {"name": name, "step": step, "columns": list(columns), "rows": rows}}


def test_what_is_logged_at_a_step_last_stands_there(ada: Place, client: Client) -> None:
    tables = [
        table("worst", 1, [["a", 1]]),
        table("worst", 1, [["b", 2.5]]),
        table("worst", 2, [["c", None]]),
    ]
    made = log_lines(
        ada.project, ada.user, beginning(), *falling(), *tables, image("seen", 1), image("seen", 2)
    )
    assert [(one.step, one.rows) for one in made.tables.order_by("step")] == [
        (1, [["b", 2.5]]),
        (2, [["c", None]]),
    ]
    page = signed_in(ada.user).get(ada.url(f"own-runs/{made.pk}")).content.decode()
    first = made.tables.get(step=1)
    assert "at step" in page and ">c<" in page and page.count("<img ") == 2
    chosen = signed_in(ada.user).get(ada.url(f"own-runs/{made.pk}"), {"table": first.pk}).content.decode()
    assert ">b<" in chosen and ">c<" not in chosen
    file = signed_in(ada.user).get(ada.url(f"own-runs/{made.pk}/tables/{first.pk}"), {"export": "csv"})
    assert file.content.decode().splitlines() == ["what,n", "b,2.5"]


def test_the_api_gives_them_back(ada: Place, client: Client) -> None:
    told = [table("worst", step, [["a", step]]) for step in (2, 1)]
    made = log_lines(ada.project, ada.user, beginning(), *told, image("seen", 4))
    headers = {"Authorization": f"Bearer {make_token(ada.project.team, ada.user, 't', 'viewer')[1]}"}
    tables = client.get(f"/api/v1/logs/{made.pk}/tables", headers=headers).json()["tables"]
    assert [(one["step"], one["rows"]) for one in tables] == [(1, [["a", 1]]), (2, [["a", 2]])]
    (seen,) = client.get(f"/api/v1/logs/{made.pk}/images", headers=headers).json()["images"]
    assert (seen["name"], seen["kind"], seen["width"], seen["height"]) == ("seen", "png", 2, 3)


def test_a_picture_is_served_as_it_came_and_may_do_nothing(ada: Place) -> None:
    made = log_lines(ada.project, ada.user, beginning(), image("seen", 7))
    one = made.images.get()
    assert (one.kind, one.width, one.height) == ("png", 2, 3)
    answer = signed_in(ada.user).get(ada.url(f"own-runs/{made.pk}/images/{one.pk}"))
    assert answer.content == picture_bytes(GRAY) and answer["Content-Type"] == "image/png"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert answer["X-Content-Type-Options"] == "nosniff"
    other = place("sly")
    assert signed_in(other.user).get(other.url(f"own-runs/{made.pk}/images/{one.pk}")).status_code == 404


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"table": {"name": "a b", "step": 1, "columns": ["x"], "rows": []}}, "is no name"),
        ({"table": {"name": "a", "step": -1, "columns": ["x"], "rows": []}}, "is no step"),
        ({"table": {"name": "a", "step": 1, "columns": [], "rows": []}}, "no columns"),
        ({"table": {"name": "a", "step": 1, "columns": ["x"], "rows": [[1, 2]]}}, "no row"),
        ({"table": {"name": "a", "step": 1, "columns": ["x"], "rows": [[{"y": 1}]]}}, "is no value"),
        ({"table": {"name": "a", "step": 1, "columns": ["x"], "rows": [[1]] * 1001}}, "no rows"),
        ({"table": {"name": "a", "step": 1, "columns": ["x"], "rows": [["y" * 300_000]]}}, "too large"),
        ({"table": {"name": "a", "step": 1, "columns": ["x"]}}, "its fields are"),
        ({"image": {"name": "a", "step": 1, "data": "no base64!"}}, "no picture"),
        ({"image": {"name": "a", "step": 1, "data": base64.b64encode(b"<svg/>").decode()}}, "no picture"),
        ({"image": {"name": "a", "step": 1, "data": 7}}, "no picture"),
    ],
)
def test_what_is_no_table_or_picture_is_refused_with_its_line(record: Any, what: str) -> None:
    with pytest.raises(BadInput, match=what) as found:
        read_records(lines(beginning(), record), is_first=True)
    assert "line 2" in str(found.value)


#: 37 x 21 points of one color, as Pillow writes them, of JPEG as far as the size is told.
FILES = {
    "jpeg": (
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWG"
        "kJ6jq62rZ4C8ybqmx5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSk"
        "pKSkpKSkpKSkpKSkpKT/wAARCAAVACUDASIAAhEBAxEB/8Q=",
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWG"
        "kJ6jq62rZ4C8ybqmx5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSk"
        "pKSkpKSkpKSkpKSkpKT/wgARCAAVACUDASIAAhEBAxEB/8Q=",
    ),
    "webp": (
        "UklGRkQAAABXRUJQVlA4IDgAAAAQAwCdASolABUAP3G202G0ryqmJWgCkC4JZwAAKa1mgAAA/uHDf/i7sRxk8P+qqevos3k99GBAAA==",
        "UklGRh4AAABXRUJQVlA4TBEAAAAvJAAFAAdQqCYUuf+BiOh/AAA=",
        "UklGRnoAAABXRUJQVlA4WAoAAAAYAAAAJAAAFAAAQUxQSAoAAAABB1CyiAhERP8D",
    ),
}


@pytest.mark.parametrize(("kind", "data"), [(kind, data) for kind, all in FILES.items() for data in all])
def test_kinds_and_sizes_are_told_by_the_first_bytes(kind: str, data: str) -> None:
    found = read_picture(base64.b64decode(data), "x")
    assert (found.kind, found.width, found.height) == (kind, 37, 21)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"RIFF____WEBPVP8 ",
        b"GIF89a" + b"\0" * 40,
        b"\x89PNG\r\n\x1a\n____IHDR" + struct.pack(">II", 0, 5),
        b"\x89PNG\r\n\x1a\n____IHDR" + struct.pack(">II", 90_000, 5),
        picture_bytes([[1]]) + b"x" * LARGEST_BYTES,
    ],
)
def test_cut_off_foreign_and_huge_pictures_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        read_picture(data, "x")


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (np.arange(12, dtype=np.uint8).reshape(3, 4), (4, 3)),
        (np.random.default_rng(0).random((5, 6, 3)), (6, 5)),
        (np.zeros((2, 3, 4), np.uint8), (3, 2)),
        ([[0.0, 1.0]], (2, 1)),
    ],
)
def test_arrays_become_pictures(array: Any, size: tuple[int, int]) -> None:
    found = read_picture(picture_bytes(array), "x")
    assert (found.kind, found.width, found.height) == ("png", *size)


def test_what_is_no_array_or_table_is_refused_by_the_client() -> None:
    for wrong in ([], [[]], [[1], [1, 2]], [[[1, 2]]]):
        with pytest.raises(LabError):
            picture_bytes(wrong)
    assert plain_table([{"a": 1, "b": np.float32(2)}, {"a": float("nan")}], None) == (
        ["a", "b"],
        [[1, 2.0], ["nan", None]],
    )
    with pytest.raises(LabError):
        plain_table([[1]], None)


def test_a_program_logs_both(ada: Place, tmp_path: Path) -> None:
    run = OwnRun(None, "net", folder=tmp_path)
    with run:
        run.table(3, "worst", [{"what": "x", "n": 1}])
        run.image(3, "seen", np.eye(4))
        assert run.file is not None
        text = run.file.path.read_bytes()
    told = read_records(text, is_first=True)
    assert told.tables == {("worst", 3): (["what", "n"], [["x", 1]])}
    assert told.images["seen", 3].width == 4
    other = OwnRun(None, "other", folder=tmp_path).begin()
    with pytest.raises(LabError):
        other.table(1, "a b", [[1]], ["x"])
    with pytest.raises(LabError):
        other.image(-1, "a", [[1]])
    other.end()


def test_too_many_are_refused_and_nothing_of_the_request_is_kept(ada: Place, monkeypatch: Any) -> None:
    monkeypatch.setattr("webapp.logged.shown.MOST_IMAGES", 2)
    with pytest.raises(BadInput, match="too many pictures"):
        log_lines(ada.project, ada.user, beginning(), *(image("seen", step) for step in range(3)))
    monkeypatch.setattr("webapp.logged.shown.MOST_TABLES", 2)
    with pytest.raises(BadInput, match="too many tables"):
        log_lines(ada.project, ada.user, beginning(), *(table("t", step, []) for step in range(3)))


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1440, 390))
def test_pictures_have_ink_and_tables_their_rows(settings: Any, monkeypatch: Any, width: int) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    there = cast.place("ada")
    draw = np.random.default_rng(0)
    shown = [image("samples/denoised", step, draw.random((96, 128, 3))) for step in range(0, 500, 100)]
    kernels = [[f"void gemm_{number}", 12.5 / (number + 1), number * 3] for number in range(60)]
    told = [table("kernels/slowest", step, kernels, ("kernel", "ms", "calls")) for step in (0, 100)]
    made = log_lines(there.project, there.user, beginning("unet"), *falling(300), *shown, *told, ending())
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, there.user)
        page.goto(address + there.url(f"own-runs/{made.pk}"))
        page.get_by_role("heading", name="samples/denoised").scroll_into_view_if_needed()
        page.wait_for_function("[...document.images].every(one => one.complete && one.naturalWidth === 128)")
        assert page.get_by_text("40 more rows in the file.").count() == 1
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("LAB_SHOTS"):
            page.screenshot(path=f"{folder}/shown-{width}.png", full_page=True)
        page.get_by_role("link", name="0", exact=True).click()
        page.get_by_text("at step 0").wait_for()
    assert LoggedImage.objects.count() == 5 and LoggedTable.objects.count() == 2
