"""The page of a profiler trace: the answer, ranks of several files, and the difference of two."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory

from experiments.readers.kineto_columns import timeline
from experiments.summaries.profile import report
from tests.experiments.readers.kineto_traces import call, kernel, trace
from tests.webapp.cast import Cast, ready, signed_in
from webapp.artifacts.models import Artifact
from webapp.artifacts.profile.page import page_of
from webapp.artifacts.profile.words import percent_of, short

pytestmark = pytest.mark.django_db


def profiled(cast: Cast, rank: int = 0, product: float = 60, wait: float = 20, **more: Any) -> Artifact:
    """Of 100 us ``product`` in a matrix product and ``wait`` in a collective after it."""
    data = trace(
        call("aten::mm", 0, 10, External_id=1),
        kernel("void gemm<float, (int)4>(float*)", 10, product, External_id=1),
        kernel("ncclDevKernel_AllReduce", 110 - wait, wait, stream=20),
        distributedInfo={"rank": rank, "world_size": 2},
        deviceProperties=[{"id": 0, "name": "NVIDIA <H100>"}],
    )
    summary = {"cards": [], "plots": [], "estimates": [], "profile": report([timeline(data, f"{rank}.json")])}
    name = more.pop("name", f"rank{rank}.json")
    return ready(
        cast.project, "step", name, zoo="", format="kineto", source="upload", summary=summary, **more
    )


def test_the_page_says_where_the_time_went(cast: Cast) -> None:
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{profiled(cast).pk}/")).content.decode()
    assert "Of 100 µs on NVIDIA &lt;H100&gt;, rank 0 of 2:" in page
    assert "60 % compute, 20 % exposed communication, 20 % idle." in page
    assert "The kernel that takes most is gemm: 60 µs in 1 call, 75 % of all work." in page
    assert "Compute hides 0 % of 20 µs of communication." in page
    assert 'title="void gemm&lt;float, (int)4&gt;(float*)">gemm' in page
    assert "New experiment with these times" not in page
    table = (
        signed_in(cast.vera)
        .get(cast.url(f"artifacts/{profiled(cast).pk}/?export=csv&table=kernels-"))
        .content.decode()
    )
    assert "void gemm" in table


def test_a_page_that_waits_has_the_style_of_what_it_turns_into(cast: Cast) -> None:
    """It follows without reloading: what is linked in its head stays as it is."""
    waiting = ready(cast.project, "", "step.json", zoo="", format="", source="upload", state="waiting")
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{waiting.pk}/")).content.decode()
    assert "A worker has yet to read this file" in page
    assert "css/profile.css" in page


def test_what_takes_most_is_drawn_where_there_is_nothing_to_divide(cast: Cast) -> None:
    """One device and one step: its kernels. Names of a trace are words, never markup."""
    data = trace(kernel("<b>gemm</b>" + "m" * 90, 10, 60), kernel("softmax", 70, 20))
    told = {"cards": [], "plots": [], "estimates": [], "profile": report([timeline(data, "one.json")])}
    made = ready(cast.project, "step", "one.json", zoo="", format="kineto", source="upload", summary=told)
    shown = page_of(made, RequestFactory().get("/"))
    assert shown is not None and shown.main is not None
    assert shown.main["title"] == "The kernels that take most"
    [bars] = shown.main["series"]
    assert bars["x"] == pytest.approx([60e-6, 20e-6])
    assert "<" not in "".join(bars["y"]).replace("<br>", "") and len(bars["y"][0]) < 50
    assert bars["hover"][1] == "softmax<br>20 µs, 1 call"


def test_uploads_of_one_job_stand_side_by_side_and_name_the_straggler(cast: Cast) -> None:
    """Rank 1 computes 90 us and waits for nobody; rank 0 waits 40 us. A third file is of another time."""
    first, _ = profiled(cast, 0, wait=40), profiled(cast, 1, product=90, wait=10)
    late = profiled(cast, 1, name="late.json")
    late.summary["profile"]["ranks"][0]["began"] += 3600
    late.save()
    page = signed_in(cast.max).get(cast.url(f"artifacts/{first.pk}/")).content.decode()
    assert "Rank 1 is the straggler: it spends 10 µs in collectives, rank 0 40 µs" in page
    assert "Time of each rank" in page
    assert "New experiment with these times" in page
    alone = signed_in(cast.max).get(cast.url(f"artifacts/{late.pk}/")).content.decode()
    assert "straggler" not in alone


def test_two_traces_differ_by_what_the_address_names(cast: Cast) -> None:
    here, there = profiled(cast, product=40), profiled(cast, product=60, name="before.json")
    reader = signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{here.pk}/?against={there.pk}")).content.decode()
    assert "as long as there (100 µs); what changed most is gemm (−20 µs)." in page
    assert f'<option value="{there.pk}" selected>before.json</option>' in page
    for unknown in ("999999", "x", str(here.pk)):
        assert (
            "what changed most"
            not in reader.get(cast.url(f"artifacts/{here.pk}/?against={unknown}")).content.decode()
        )


def test_a_trace_read_before_profiles_were_stored_has_its_old_page(cast: Cast) -> None:
    old = ready(cast.project, "step", "old.json", zoo="", format="kineto", summary={"cards": []})
    assert (
        "Where the time went"
        not in signed_in(cast.max).get(cast.url(f"artifacts/{old.pk}/")).content.decode()
    )
    page = signed_in(cast.max).get(cast.url(f"artifacts/{profiled(cast).pk}/")).content.decode()
    assert "old.json" not in page


def test_names_and_shares_are_short_and_never_vanish() -> None:
    assert short("void at::native::reduce<512, Op<float> >(int)") == "at::native::reduce"
    assert short("Memcpy HtoD (Pinned -> Device)") == "Memcpy HtoD"
    assert short("<>") == "<>"
    assert [percent_of(part, 1000) for part in (611, 42, 0.2, 0)] == ["61 %", "4.2 %", "below 0.1 %", "0 %"]
