import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskmq.errors import InvalidFilter, InvalidOption
from taskmq.model.jobs.filter_text import may_have_times, parse_filter, parse_run_filter
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.runs.records import RunState
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT, instant_text

_NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_HOUR = 3_600_000

_texts = st.text(max_size=12) | st.sampled_from(["a*", "*", "a b", 'say "x"', "\\", "a,b", "x:y", "größe ☂", ">=5"])
_names = st.lists(_texts, max_size=3).map(tuple)
_numbers = st.none() | st.integers(0, LAST_INSTANT)
_filters = st.builds(
    JobFilter,
    tenant=st.none() | _texts,
    states=st.frozensets(st.sampled_from([state for state in JobState if state is not JobState.UNKNOWN])),
    tasks=_names,
    task_prefix=_texts,
    queues=_names,
    keys=_names,
    errors=_names,
    submitted_from=_numbers,
    submitted_before=_numbers,
    due_from=_numbers,
    due_before=_numbers,
    finished_from=_numbers,
    finished_before=_numbers,
    min_attempt=st.none() | st.integers(0, 999_999_999),
    min_ran=_numbers,
    min_waited=_numbers,
    labels=st.lists(st.tuples(_texts.filter(bool), _texts), max_size=3).map(tuple),
    ids=_names,
    retried=st.sampled_from(["", "any", "no", "yes"]),
    via=st.sampled_from(["", "store", "broker", "any"]),
)


@given(_filters)
def test_a_filter_survives_its_round_trip(which: JobFilter) -> None:
    assert parse_filter(_write_filter(which), _NOW) == which


@given(st.text() | st.text(alphabet='status:,-*"\\ >=.5ahlbe', max_size=30))
def test_any_text_is_a_filter_or_a_typed_error_with_a_column(text: str) -> None:
    which, error = _try_parse(text)

    if which is not None:
        assert parse_filter(_write_filter(which), _NOW) == which
    if error is not None:
        assert 1 <= error.column <= len(text) + 1
        assert str(error).startswith(f"column {error.column}: ")


@given(st.text() | st.text(alphabet='created:now-+24h<>="\\ ', max_size=30))
@example("status:failed task:now")
def test_a_filter_without_relative_times_does_not_depend_on_the_clock(text: str) -> None:
    if not may_have_times(text) and (which := _try_parse(text)[0]) is not None:
        assert parse_filter(text, _NOW + 1) == which


@pytest.mark.parametrize("text", ["created:>now", "created:<=-24h", 'created:">+1h"'])
def test_a_relative_filter_may_contain_times(text: str) -> None:
    assert may_have_times(text)
    assert parse_filter(text, _NOW) != parse_filter(text, _NOW + 1)


def _write_filter(which: JobFilter) -> str:
    """Write a text that `parse_filter` reads as this filter at any time."""
    parts = [f"status:{','.join(which.states)}"] if which.states else []
    for field in ("task", "queue", "key", "error", "id"):
        if values := getattr(which, f"{field}s"):
            parts.append(f"{field}:{','.join(map(_quote, values))}")
    if which.task_prefix:
        parts.append(f"task:{_quote(which.task_prefix)}*")
    if which.tenant is not None:
        parts.append(f"tenant:{_quote(which.tenant)}")
    for field, least in (("duration", which.min_ran), ("wait", which.min_waited)):
        if least is not None:
            parts.append(f"{field}:>={least}ms")
    if which.min_attempt is not None:
        parts.append(f"attempt:>={which.min_attempt}")
    for field, name in (("created", "submitted"), ("due", "due"), ("ended", "finished")):
        for sign, end in ((">=", "from"), ("<", "before")):
            if (instant := getattr(which, f"{name}_{end}")) is not None:
                parts.append(f"{field}:{sign}{instant_text(instant)}")
    if which.retried:
        parts.append(f"retried:{which.retried}")
    if which.via:
        parts.append(f"via:{which.via}")
    parts += [f"label.{_quote(name)}:{_quote(value)}" for name, value in which.labels]
    return " ".join(parts)


def _quote(text: str) -> str:
    if re.fullmatch(r'[^\s,":*\\]+', text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _try_parse(text: str) -> tuple[JobFilter | None, InvalidFilter | None]:
    try:
        return parse_filter(text, _NOW), None
    except InvalidFilter as error:
        return None, error


def test_a_complete_filter_is_parsed() -> None:
    text = (
        "status:failed,dead task:billing.* queue:default tenant:acme error:TimeoutError duration:>5s wait:>=30s "
        'attempt:>=3 created:>=-24h label.team:x key:order-17,"order 18" id:1,2'
    )

    assert parse_filter(text, _NOW) == JobFilter(
        states=frozenset({JobState.FAILED}),
        task_prefix="billing.",
        queues=("default",),
        tenant="acme",
        errors=("TimeoutError",),
        min_ran=5_001,
        min_waited=30_000,
        min_attempt=3,
        submitted_from=_NOW - 24 * _HOUR,
        labels=(("team", "x"),),
        keys=("order-17", "order 18"),
        ids=("1", "2"),
    )


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_text_matches_everything(text: str) -> None:
    assert parse_filter(text, _NOW) == EVERYTHING


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status:queued", {JobState.QUEUED}),
        ("state:queued", {JobState.QUEUED}),
        ("status:QUEUED,Running", {JobState.QUEUED, JobState.RUNNING}),
        ("status:dead", {JobState.FAILED}),
        ("status:completed", {JobState.SUCCEEDED}),
        ("status:processing", {JobState.RUNNING}),
        ("status:claimed", {JobState.DISPATCHED}),
        ("status:canceled", {JobState.CANCELLED}),
        (
            "status:pending",
            {JobState.WAITING, JobState.HELD, JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING},
        ),
    ],
)
def test_states_of_other_systems_are_accepted_as_aliases(text: str, expected: set[JobState]) -> None:
    assert parse_filter(text, _NOW) == JobFilter(states=frozenset(expected))


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("created:>=-24h", JobFilter(submitted_from=_NOW - 24 * _HOUR)),
        ("created:>-24h", JobFilter(submitted_from=_NOW - 24 * _HOUR + 1)),
        ("created:<-1h30m", JobFilter(submitted_before=_NOW - _HOUR * 3 // 2)),
        ("created:<=now", JobFilter(submitted_before=_NOW + 1)),
        ("due:<+1h", JobFilter(due_before=_NOW + _HOUR)),
        ("ended:>=-1h ended:<now", JobFilter(finished_from=_NOW - _HOUR, finished_before=_NOW)),
        ("due:>=2026-01-01T00:00:00Z", JobFilter(due_from=_NOW)),
        ("due:>=2026-01-01T01:00:00.250+01:00", JobFilter(due_from=_NOW + 250)),
        ("due:>=now due:<+1h", JobFilter(due_from=_NOW, due_before=_NOW + _HOUR)),
        ("created:>=-9999999h", JobFilter(submitted_from=0)),
        ("created:>=1900-01-01T00:00:00Z", JobFilter(submitted_from=0)),
        ("created:<+9999999999h", JobFilter(submitted_before=LAST_INSTANT)),
    ],
)
def test_times_are_instants_with_a_zone_or_relative_to_now(text: str, which: JobFilter) -> None:
    assert parse_filter(text, _NOW) == which


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ('tenant:""', JobFilter(tenant="")),
        ('task:"a*"', JobFilter(tasks=("a*",))),
        ('task:"a b"*', JobFilter(task_prefix="a b")),
        ("task:a,b task:x.*", JobFilter(tasks=("a", "b"), task_prefix="x.")),
        (r'key:"say \"x\" \\"', JobFilter(keys=('say "x" \\',))),
        ("key:a:b", JobFilter(keys=("a:b",))),
        ('label."größe ☂":"a b" label.team:ops', JobFilter(labels=(("größe ☂", "a b"), ("team", "ops")))),
        ("attempt:>2", JobFilter(min_attempt=3)),
        ("retried:any", JobFilter(retried="any")),
        ("via:store", JobFilter(via="store")),
        ("duration:>=1h30m", JobFilter(min_ran=_HOUR * 3 // 2)),
    ],
)
def test_quoted_names_and_values_are_literal(text: str, which: JobFilter) -> None:
    assert parse_filter(text, _NOW) == which


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("billing", 1, "'billing' has no field: write for example task:billing"),
        ("status:failed billing", 15, "'billing' has no field"),
        ("staus:failed", 1, "unknown field 'staus': did you mean 'status'?"),
        ("status:failed state:failed", 15, "state occurs twice"),
        (":x", 1, "unknown field ''"),
        ("status:faild", 8, "unknown status 'faild': did you mean 'failed'?"),
        ("status:failed,", 15, "has no value: write for example status:failed"),
        ("status:fail*", 8, "unknown status 'fail'"),
        ("queue:", 7, "queue: has no value: write for example queue:x"),
        ("queue:a*", 7, "only task"),
        ("-task:x", 1, "-task: excludes jobs, which is not possible"),
        ("task:*", 6, "task:billing.*"),
        ("task:a,b.*", 8, "a filter has at most one prefix of a task"),
        ('task:"a', 6, "the quote is not closed"),
        ('task:"a"b', 9, "put a space or a comma after the value of task"),
        ("task:a task:b", 8, "task occurs twice"),
        ("tenant:a,b", 10, "tenant takes one value"),
        ("tenant:a*", 8, "put quotes around a star"),
        ("label:x", 1, "the label has no name"),
        ("label.:x", 7, "the label has no name"),
        ("retried:maybe", 9, "retried:maybe is not a choice: write retried:yes, no or any"),
        ("via:post", 5, "via:post is not a choice: write via:broker, store or any"),
        ("attempt:3", 9, "write attempt:>=3"),
        ("attempt:<3", 9, "write attempt:>=3"),
        ("attempt:>=x", 9, "is not a number of attempts"),
        ("attempt:>=99999999999", 9, "is not a number of attempts"),
        ("duration:5s", 10, "write duration:>5s"),
        ("wait:>soon", 6, "'soon' is not a duration: write for example wait:>30s"),
        ("created:-24h", 9, "needs a > or < before the time: write created:>-24h"),
        ("created:>2026-01-01", 9, "'2026-01-01' has no zone"),
        ("created:>2026-01-01T00:00:00", 9, "has no zone: put Z (UTC)"),
        ("created:>yesterday", 9, "'yesterday' is not a time"),
        ("created:>-yesterday", 9, "'-yesterday' is not a relative time"),
    ],
)
def test_an_invalid_text_is_refused_with_its_position_and_the_expected_text(
    text: str, column: int, says: str
) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text, _NOW)

    assert caught.value.column == column
    assert says in str(caught.value)
    assert isinstance(caught.value, InvalidOption)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("workflow:nightly*", {"workflow": "nightly*"}),
        ('workflow:"a*"', {"workflow": "a*"}),
        ("status:failed,running", {"states": (RunState.FAILED, RunState.RUNNING), "is_held": False}),
        ("status:held", {"states": (RunState.RUNNING,), "is_held": True}),
        ("status:held,failed", {"states": (RunState.RUNNING, RunState.FAILED), "is_held": True}),
        ("status:held,running", {"states": (RunState.RUNNING,), "is_held": False}),
        ("state:cancelled tenant:acme", {"states": (RunState.CANCELLED,), "is_held": False, "tenant": "acme"}),
        ("started:>-1h started:<=now", {"since": _NOW - 3_600_000 + 1, "until": _NOW + 1}),
        ("label.team:ops label.stage:test", {"labels": {"team": "ops", "stage": "test"}}),
        ("parent:0193", {"parent": "0193"}),
    ],
)
def test_a_filter_of_runs_is_parsed(text: str, fields: dict[str, Any]) -> None:
    assert parse_run_filter(text, _NOW) == fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("status:dead", "unknown status 'dead'"),
        ("status:fail*", "unknown status 'fail'"),
        ("workflow:a,b", "workflow takes one name"),
        ("workflow:a workflow:b", "workflow occurs twice: a run must match both"),
        ("created:>-1h", "unknown field 'created': did you mean 'started'?"),
        ("task:x", "unknown field 'task'"),
        ("started:-1h", "started needs a > or < before the time: write started:>-24h"),
        ("-status:failed", "-status: excludes runs, which is not possible: name the runs to find"),
        ("workflow:", "workflow: has no value: write for example workflow:nightly*"),
    ],
)
def test_a_faulty_filter_of_runs_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidFilter, match=re.escape(message)):
        parse_run_filter(text, _NOW)
