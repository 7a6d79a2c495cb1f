"""The search language: read back the same, the runs that plain Python finds, complaints with a column."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.history.models import RunNote, RunTag
from webapp.history.search import Query, SearchError, parse
from webapp.history.search.completion import complete
from webapp.history.search.rows import first_runs, groups, search
from webapp.history.search.tree import (
    Aggregate,
    And,
    Between,
    Compare,
    Condition,
    Field,
    Like,
    Missing,
    Not,
    OneOf,
    Or,
    Text,
)
from webapp.history.search.words import say, write
from webapp.history.table import runs_of
from webapp.hosts.models import Host
from webapp.runs.models import Run

POLICY, STATE, HARDWARE = (Field("column", name) for name in ("policy", "state", "hardware"))
STEP, PEAK = Field("metric", "step_time"), Field("metric", "peak_memory")
BATCH, TAG = Field("knob", "max_batch"), Field("tag", "tag")
TEXTS = {POLICY: ["vdnn", "capuchin", "orca"], STATE: ["succeeded", "failed"], TAG: ["paper", "old"]}


def bare(condition: Any) -> Any:
    """Without the places of fields in a text."""
    if isinstance(condition, Field):
        return Field(condition.kind, condition.name)
    if isinstance(condition, tuple):
        return tuple(map(bare, condition))
    if hasattr(condition, "__dataclass_fields__"):
        return type(condition)(*(bare(getattr(condition, name)) for name in condition.__dataclass_fields__))
    return condition


numbers = st.sampled_from([0.5, 1.0, 2.0, 4.0, 16.0, 64.0])
texts = st.sampled_from(sorted(TEXTS, key=str)).flatmap(
    lambda field: st.one_of(
        st.builds(Compare, st.just(field), st.sampled_from(["=", "!="]), st.sampled_from(TEXTS[field])),
        st.builds(lambda *values: OneOf(field, values), *[st.sampled_from(TEXTS[field])] * 2),
        st.builds(Like, st.just(field), st.sampled_from(["*", "c*", "*d*", "va*n"])),
        st.just(Missing(field)),
    )
)
figures = st.sampled_from([STEP, PEAK, BATCH]).flatmap(
    lambda field: st.one_of(
        st.builds(Compare, st.just(field), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), numbers),
        st.builds(Between, st.just(field), numbers, numbers),
        st.just(Missing(field)),
    )
)
conditions = st.recursive(
    st.one_of(texts, figures, st.builds(Text, st.sampled_from(["vd", "a100", 'say "so"', "and"]))),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda *parts: And(parts), inner, inner),
        st.builds(lambda *parts: Or(parts), inner, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(condition=conditions)
def test_what_is_written_reads_the_same(condition: Condition) -> None:
    assert bare(parse(write(Query(condition)))) == Query(condition)
    assert say(Query(condition)).startswith("runs where ")


@settings(max_examples=500)
@given(text=st.text(max_size=60))
def test_whatever_is_typed_is_read_or_complained_about(text: str) -> None:
    try:
        parse(text)
    except SearchError as error:
        assert 1 <= error.column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("step_tme < 4", 1, "perhaps step_time"),
        ("policy = vdnn and pe", 19, "nothing|too early|like"),
        ("step_time <", 12, "too early"),
        ("step_time < fast", 13, "a number for step_time"),
        ("policy < vdnn", 8, "is text"),
        ("(policy = vdnn", 15, "too early"),
        ("policy = vdnn)", 14, "does not belong"),
        ("time > yesterday", 8, "a day or a moment"),
        ("group by step_time", 10, "nothing to group by"),
        ("group by policy: mode(step_time)", 18, "count, min"),
        ("order by knob.max_batch", 10, "nothing to sort by"),
    ],
)
def test_complaints_have_a_column_and_what_would_be_right(text: str, column: int, what: str) -> None:
    if text.endswith("and pe"):
        parse(text)  # a word alone is text to look for
        return
    with pytest.raises(SearchError, match=what) as found:
        parse(text)
    assert found.value.column == column


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time < 4 s", Compare(STEP, "<", 4.0)),
        ("step_time<20ms", Compare(STEP, "<", 0.02)),
        ("peak_memory >= 2 GiB", Compare(PEAK, ">=", 2.0 * 2**30)),
        ("metric.mfu > 40 %", Compare(Field("metric", "mfu"), ">", 0.4)),
        ("knob.max_batch in (8, 16)", OneOf(BATCH, (8.0, 16.0))),
        ("POLICY NOT IN (a, b)".replace("POLICY", "policy"), Not(OneOf(POLICY, ("a", "b")))),
        ("hardware = rtx-4090-24g", Compare(HARDWARE, "=", "rtx-4090-24g")),
        ('"and" or vdnn', Or((Text("and"), Text("vdnn")))),
    ],
)
def test_units_lists_and_words(text: str, expected: Condition) -> None:
    assert bare(parse(text).condition) == expected


def test_groups_and_orders() -> None:
    text = "family = memory group by policy, hardware: min(step_time), count order by step_time desc"
    found = bare(parse(text))
    assert found.group == (POLICY, HARDWARE)
    assert found.aggregates == (Aggregate("min", STEP), Aggregate("count"))
    assert (found.order, found.descending) == (STEP, True)
    assert bare(parse(write(found))) == found


@pytest.fixture
def history(db: None) -> Place:
    """Runs of every kind of value: numbers, text and nothing under one knob, figures missing, tags."""
    ada = cast.place("ada")
    made = cast.experiment(ada.project)
    rows: list[tuple[str, dict[str, float], Any]] = [
        ("vdnn", {"step_time": 0.5, "peak_memory": 4.0}, 16),
        ("vdnn", {"step_time": 2.0}, 64.5),
        ("capuchin", {"step_time": 4.0, "peak_memory": 1.0}, None),
        ("orca", {}, "many"),
        ("orca", {"step_time": 1.0}, True),
        ("capuchin", {"peak_memory": 64.0}, 4),
    ]
    for number, (policy, values, batch) in enumerate(rows):
        run = cast.run(made, policy, values, family="memory")
        spec = {**run.spec, "knobs": {} if batch is None else {"max_batch": batch}}
        state = Run.State.FAILED if number == 3 else Run.State.SUCCEEDED
        Run.objects.filter(pk=run.pk).update(spec=spec, state=state)
        if number % 2:
            RunTag.objects.create(run=run, name="paper", by=ada.user)
        if number > 3:
            RunTag.objects.create(run=run, name="old", by=ada.user)
    return ada


class Plain:
    """The truth: a run as plain values, a condition as plain Python."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.metrics = {metric.name: metric.value for metric in run.metrics.all()}
        self.tags = [tag.name for tag in run.tags.all()]  # type: ignore[attr-defined]

    def values(self, field: Field) -> list[Any]:
        if field.kind == "metric":
            return [self.metrics[field.name]] if field.name in self.metrics else []
        if field.kind == "tag":
            return self.tags
        if field.kind == "knob":
            return [self.run.spec["knobs"][field.name]] if field.name in self.run.spec["knobs"] else []
        return [getattr(self.run, field.name)]

    def holds(self, condition: Condition) -> bool:
        match condition:
            case Compare(field, "!=", value):
                found = self.values(field)
                return bool(found) and not any(compares(one, "=", value) for one in found)
            case Compare(field, operator, value):
                return any(compares(one, operator, value) for one in self.values(field))
            case OneOf(field, values):
                return any(compares(one, "=", value) for one in self.values(field) for value in values)
            case Between(field, low, high):
                ends = ((">=", low), ("<=", high))
                return any(all(compares(one, *end) for end in ends) for one in self.values(field))
            case Like(field, pattern):
                return any(fnmatch.fnmatchcase(one, pattern) for one in self.values(field))
            case Missing(field):
                return not self.values(field)
            case Text(text):
                name = self.run.artifact.name if self.run.artifact else ""
                told = (self.run.policy, self.run.hardware, name, self.run.experiment.name)  # type: ignore[union-attr]
                return any(text.lower() in one.lower() for one in told)
            case Not(of):
                return not self.holds(of)
            case And(parts):
                return all(map(self.holds, parts))
            case Or(parts):
                return any(map(self.holds, parts))


def compares(found: Any, operator: str, wanted: Any) -> bool:
    if isinstance(found, bool) or isinstance(found, str) != isinstance(wanted, str):
        return False
    tests = {
        "=": found == wanted,
        **({} if isinstance(found, str) else {"<": found < wanted, "<=": found <= wanted}),
        **({} if isinstance(found, str) else {">": found > wanted, ">=": found >= wanted}),
    }
    return tests[operator]


def test_the_database_finds_what_plain_python_does(history: Place) -> None:
    runs = runs_of(history.project)
    truth = [Plain(run) for run in runs.prefetch_related("metrics", "tags").select_related("artifact")]

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(condition=conditions)
    def find(condition: Condition) -> None:
        found = set(search(runs, Query(condition)).values_list("pk", flat=True))
        assert found == {one.run.pk for one in truth if one.holds(condition)}, write(Query(condition))

    find()


def test_no_seed_is_a_part_of_a_number(history: Place) -> None:
    """Seeds are whole, and one that is asked for between two is neither."""
    count = runs_of(history.project).count()
    found = {
        text: search(runs_of(history.project), parse(text)).count() for text in ("seed = 0.5", "seed = 0")
    }
    assert found == {"seed = 0.5": 0, "seed = 0": count}
    assert search(runs_of(history.project), parse("seed != 0.5")).count() == count


@pytest.mark.parametrize("field", ["artifact", "experiment", "host", "by", "note"])
def test_what_a_run_has_none_of_is_not_so(db: None, field: str) -> None:
    """One run has it, one has another, one has none: the last is neither the first nor unlike it."""
    ada, eve = cast.place("ada"), cast.place("eve")
    runs = [cast.run(cast.experiment(ada.project), policy) for policy in ("has", "other", "none")]
    for run, name in zip(runs, ("wanted", "another"), strict=False):
        give(run, field, name, eve if name == "another" else ada)
    runs[2].experiment = None
    runs[2].save()

    def find(text: str) -> list[str]:
        return sorted(search(runs_of(ada.project), parse(text)).values_list("policy", flat=True))

    assert find(f"{field} = wanted") == find(f"{field} like w*") == find(f"{field} in (wanted, x)") == ["has"]
    assert find(f"{field} != wanted") == ["other"]
    assert find(f"not ({field} = wanted)") == find(f"{field} not in (wanted)") == ["none", "other"]
    assert find(f"{field} missing") == ["none"]
    assert find(f"{field} = wanted or policy = none") == ["has", "none"]
    assert find(f"not ({field} = wanted or policy = none)") == ["other"]


def give(run: Run, field: str, name: str, place: Place) -> None:
    match field:
        case "artifact":
            run.artifact = cast.ready(run.project, name=name)
        case "experiment":
            run.experiment = cast.experiment(run.project, name)
        case "host":
            run.host = Host.objects.create(name=name)
        case "by":
            place.user.username = name
            place.user.save()
            run.owner = place.user
        case "note":
            RunNote.objects.create(run=run, text=name)
    run.save()


def test_order_and_groups(history: Place) -> None:
    runs = runs_of(history.project)
    query = parse("order by step_time desc")
    found = [{one.name: one.value for one in run.metrics.all()} for run in first_runs(runs, query, 10)]
    values = [row.get("step_time") for row in found]
    assert values == [4.0, 2.0, 1.0, 0.5, None, None]
    for are_many in (False, True):
        told = parse("group by policy: min(step_time), mean(step_time), count")
        rows = groups(runs, told, 10, are_many)
        by_policy = {
            row["policy"]: (row["min(step_time)"], row["mean(step_time)"], row["count"]) for row in rows
        }
        assert by_policy == {"vdnn": (0.5, 1.25, 2), "capuchin": (4.0, 4.0, 2), "orca": (1.0, 1.0, 2)}


def test_groups_of_few_and_of_many_are_those_of_plain_python(history: Place) -> None:
    """Many are found by figures that are joined, few by a look for each."""
    runs = runs_of(history.project)
    truth = [Plain(run) for run in runs.prefetch_related("metrics", "tags").select_related("artifact")]

    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(condition=conditions, are_many=st.booleans())
    def group(condition: Condition, are_many: bool) -> None:
        query = replace(
            parse("group by policy: count, min(step_time), max(peak_memory)"), condition=condition
        )
        rows = groups(runs, query, 10, are_many)
        found = {row["policy"]: (row["count"], row["min(step_time)"]) for row in rows}
        wanted: dict[str, list[Plain]] = {}
        for one in truth:
            if one.holds(condition):
                wanted.setdefault(one.run.policy, []).append(one)
        assert found == {policy: (len(ones), fastest(ones)) for policy, ones in wanted.items()}, write(query)

    group()


def test_repeats_are_folded_into_a_mean_and_its_interval(history: Place) -> None:
    """0.5 and 2 s: 1.25 s, a deviation of 0.75 x sqrt(2), so 12.706 x 0.75 s on either side."""
    query = parse("group by policy: count, mean(step_time), interval(step_time)")
    found = {row.pop("policy"): tuple(row.values()) for row in groups(runs_of(history.project), query, 10)}
    assert found["vdnn"] == (2, 1.25, pytest.approx(12.706 * 0.75, rel=1e-4))
    # Two runs each, of which one has the figure.
    assert (found["capuchin"], found["orca"]) == ((2, 4.0, None), (2, 1.0, None))


def fastest(ones: list[Plain]) -> float | None:
    times = [one.value for plain in ones for one in plain.run.metrics.all() if one.name == "step_time"]
    return min(times, default=None)


def test_completion_offers_names_comparisons_and_values_that_are_there(history: Place) -> None:
    assert "peak_memory" in complete(history.project, "family = memory and pe")
    assert complete(history.project, "step_time ")[0] == "<"
    assert complete(history.project, "policy = c") == ["capuchin"]
    assert complete(history.project, "tag in (paper, o") == ["old"]
    assert "knob.max_batch" in complete(history.project, "max_ba")
    assert complete(history.project, "group by policy: me") == ["mean(", "median("]
    assert complete(history.project, "group by policy: mean(step_time), ")[0] == "count"
    assert "step_time" in complete(history.project, "group by policy: mean(step")
