"""`app.definitions`, and jobs created from definitions; on a SQLite file."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.errors import (
    DefinitionConflict,
    DefinitionNotFound,
    EncodeError,
    InvalidArguments,
    InvalidOption,
    JobConflict,
    TooLarge,
    UnknownTask,
    UnsupportedFeature,
)
from taskmq.model.envelope import JSON, decode_envelope
from taskmq.tasks.task import Task
from tests.unit.app_kit import new_file_store

# Options that a definition cannot have, which type checkers report.
_HELD: dict[str, Any] = {"held": True}
_AN_INSTANT: dict[str, Any] = {"expires": datetime(2027, 1, 31, tzinfo=UTC)}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[TaskMQ]:
    with TaskMQ("memory://definitions", store=new_file_store(tmp_path)) as app:

        @app.task(name="report", queue="reports", priority=6)
        def report(month: str, day: date, *, region: str = "eu", queue: str = "") -> str:
            return month

        yield app


def _report(app: TaskMQ) -> Task[..., Any]:
    return app.tasks["report"]


def _call(app: TaskMQ, job_id: str) -> tuple[Any, Any]:
    record = app.jobs.get(job_id)
    envelope = decode_envelope(record.body)
    return app.tasks["report"].signature.decode(envelope.args, envelope.kwargs, JSON)


def test_a_job_has_the_arguments_and_options_of_its_definition_and_names_its_version(app: TaskMQ) -> None:
    made = app.definitions.put(
        "monthly",
        _report(app),
        args=["jan", date(2027, 1, 31)],
        kwargs={"region": "us"},
        queue="slow",
        priority=2,
        expires="1h",
        labels={"team": "ops"},
        description="every month",
        owner="ann",
        by="bob",
    )
    assert (made.name, made.version, made.by, made.content.args) == ("monthly", 1, "bob", ["jan", "2027-01-31"])

    record = app.jobs.get(app.jobs.submit("monthly").id)

    assert (record.task, record.queue, record.priority) == ("report", "slow", 2)
    assert record.expires is not None
    assert record.expires - record.submitted == pytest.approx(3_600_000, abs=5)
    assert record.detail is not None
    assert (record.detail.definition, record.detail.definition_version) == ("monthly", 1)
    assert (record.detail.labels, record.detail.description, record.detail.owner) == (
        {"team": "ops"},
        "every month",
        "ann",
    )
    assert _call(app, record.id) == (("jan", date(2027, 1, 31)), {"region": "us"})


def test_a_submission_overrides_its_definition(app: TaskMQ) -> None:
    app.definitions.put(
        "monthly",
        "report",
        args=["jan", "2027-01-31"],
        kwargs={"region": "us", "queue": "x"},
        priority=2,
        labels={"team": "ops", "kind": "report"},
        description="every month",
        owner="ann",
    )

    job = app.jobs.submit(
        "monthly",
        "feb",
        date(2027, 2, 28),
        region="asia",
        priority=8,
        queue="fast",
        labels={"team": "web"},
        description="again",
        owner="bob",
    )

    record = app.jobs.get(job.id)
    assert (record.queue, record.priority) == ("fast", 8)
    assert record.detail is not None
    assert record.detail.labels == {"team": "web", "kind": "report"}
    assert (record.detail.description, record.detail.owner) == ("again", "bob")
    assert _call(app, record.id) == (("feb", date(2027, 2, 28)), {"region": "asia", "queue": "x"})


def test_a_definition_without_options_keeps_those_of_the_task(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", args=["jan", "2027-01-31"])

    record = app.jobs.get(app.jobs.submit("monthly").id)

    assert (record.queue, record.priority, record.expires) == ("reports", 6, None)


def test_a_definition_may_omit_what_each_submission_adds(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", kwargs={"day": date(2027, 1, 31)})

    job = app.jobs.submit("monthly", "jan")

    assert _call(app, job.id) == (("jan",), {"day": date(2027, 1, 31)})
    with pytest.raises(InvalidArguments, match="'month' is missing"):
        app.jobs.submit("monthly")
    with pytest.raises(InvalidArguments, match="month"):
        app.jobs.submit("monthly", 7)
    assert app.jobs.count() == 1


def test_many_jobs_are_created_from_a_definition_at_once(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", kwargs={"day": "2027-01-31"})

    jobs = app.jobs.submit_many("monthly", [("jan",), {"month": "feb", "day": "2027-02-28"}])

    assert [_call(app, job.id) for job in jobs] == [
        (("jan",), {"day": date(2027, 1, 31)}),
        ((), {"month": "feb", "day": date(2027, 2, 28)}),
    ]
    with pytest.raises(InvalidArguments, match="not a call"):
        app.jobs.submit_many("monthly", ["jan"])


def test_a_repeated_submission_is_one_job_even_if_the_definition_has_changed(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", kwargs={"day": "2027-01-31"})
    first = app.jobs.submit("monthly", "jan", job_id="jan")
    app.definitions.put("monthly", "report", kwargs={"day": "2027-02-28"})

    assert app.jobs.submit("monthly", "jan", job_id="jan").id == first.id
    with pytest.raises(JobConflict):
        app.jobs.submit("monthly", "feb", job_id="jan")
    with pytest.raises(JobConflict):
        app.jobs.submit("monthly", "jan", job_id="jan", priority=1)
    assert app.jobs.count() == 1


def test_a_repeated_job_names_the_definition_of_the_first_one(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", args=["jan", "2027-01-31"])
    job = app.jobs.submit("monthly", delay="1h")
    app.definitions.delete("monthly")

    again = app.jobs.get(app.jobs.clone(job.id).id)

    assert again.detail is not None
    assert (again.detail.definition, again.detail.definition_version) == ("monthly", 1)


def test_a_definition_belongs_to_its_tenant(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", args=["jan", "2027-01-31"], tenant="acme")

    job = app.jobs.submit("monthly", tenant="acme")

    assert app.jobs.get(job.id).tenant == "acme"
    for tenant in (None, "umbrella"):
        with pytest.raises(UnknownTask, match="monthly"):
            app.jobs.submit("monthly", tenant=tenant)
    with pytest.raises(DefinitionNotFound):
        app.definitions.get("monthly")


def test_versions_are_created_listed_and_found_again(app: TaskMQ) -> None:
    puts = [app.definitions.put("monthly", "report", priority=priority) for priority in (1, 2, 2, 3)]

    assert [one.version for one in puts] == [1, 2, 2, 3]
    assert [one.version for one in app.definitions.versions("monthly")] == [3, 2, 1]
    assert [one.version for one in app.definitions.versions("monthly", before=3, limit=1)] == [2]
    assert app.definitions.get("monthly", version=1).content.priority == 1
    assert app.definitions.get("monthly").version == 3
    with pytest.raises(DefinitionNotFound, match="version 9"):
        app.definitions.get("monthly", version=9)
    with pytest.raises(DefinitionNotFound, match="weekly"):
        app.definitions.versions("weekly")


def test_a_definition_is_changed_and_deleted_for_the_seen_version(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", version=0)

    with pytest.raises(DefinitionConflict, match="has version 1, not 2") as conflict:
        app.definitions.put("monthly", "report", priority=1, version=2)
    assert conflict.value.version == 1
    with pytest.raises(DefinitionConflict):
        app.definitions.delete("monthly", version=2)
    app.definitions.delete("monthly", version=1)
    with pytest.raises(DefinitionNotFound):
        app.definitions.delete("monthly")
    with pytest.raises(DefinitionNotFound):
        app.definitions.put("monthly", "report", version=1)
    with pytest.raises(UnknownTask):
        app.jobs.submit("monthly")
    assert app.definitions.put("monthly", "report", version=0).version == 2


def test_definitions_are_listed_by_the_prefix_of_their_names(app: TaskMQ) -> None:
    for name in ("b", "a.y", "a.x"):
        app.definitions.put(name, "report")

    first = app.definitions.list("a.", limit=1)

    assert ([one.name for one in first.definitions], first.after) == (["a.x"], "a.x")
    assert [one.name for one in app.definitions.list("a.", after=first.after).definitions] == ["a.y"]
    assert len(app.definitions.list().definitions) == 3


@pytest.mark.parametrize(
    ("put", "error", "reason"),
    [
        (lambda app: app.definitions.put("report", "report"), InvalidOption, "a task already has this name"),
        (lambda app: app.definitions.put("x", "raport"), UnknownTask, "raport"),
        (lambda app: app.definitions.put("x", "r" * 500), UnknownTask, "no|neither"),
        (lambda app: app.definitions.put("x" * 500, "report"), InvalidOption, "1 to 128"),
        (lambda app: app.definitions.put("x\0", "report"), InvalidOption, "1 to 128"),
        (lambda app: app.definitions.put("\ud800", "report"), InvalidOption, "1 to 128"),
        (lambda app: app.definitions.put("", "report"), InvalidOption, "1 to 128"),
        (lambda app: app.definitions.put("x", "report", tenant="a\0"), InvalidOption, "tenant"),
        (lambda app: app.definitions.put("x", "report", tenant="\ud800"), InvalidOption, "tenant"),
        (lambda app: app.definitions.put("x", "report", args=["\ud800"]), EncodeError, "x"),
        (lambda app: app.definitions.put("x", "report", args=["y" * 2**20]), TooLarge, "262,144"),
        (lambda app: app.definitions.put("x", "report", args=[object()]), EncodeError, "object"),
        (lambda app: app.definitions.put("x", "report", kwargs={"mont": "jan"}), InvalidArguments, "'month'"),
        (lambda app: app.definitions.put("x", "report", args=[1, "2027-01-31"]), InvalidArguments, "month"),
        (lambda app: app.definitions.put("x", "report", args=["a", "2027-01-31", 3]), InvalidArguments, "too many"),
        (lambda app: app.definitions.put("x", "report", priority=11), InvalidOption, "priority"),
        (lambda app: app.definitions.put("x", "report", queue="amq.x"), InvalidOption, "amq"),
        (lambda app: app.definitions.put("x", "report", expires="soon"), InvalidOption, "expires"),
        (lambda app: app.definitions.put("x", "report", labels={"a": "\0"}), InvalidOption, "label"),
        (
            lambda app: app.definitions.put("x", "report", **_HELD),
            InvalidOption,
            "unknown option 'held'; known: queue",
        ),
        (
            lambda app: app.definitions.put("x", "report", **_AN_INSTANT),
            InvalidOption,
            "expires: give a duration after",
        ),
        (lambda app: app.definitions.put("x", "report", description="y" * 3_000), InvalidOption, "description"),
        (lambda app: app.definitions.put("x", "report", owner="\ud800"), InvalidOption, "owner"),
        (lambda app: app.definitions.list(limit=0), InvalidOption, "limit"),
        (lambda app: app.definitions.versions("x", limit=0), InvalidOption, "limit"),
    ],
)
def test_an_invalid_definition_is_refused_by_name_and_nothing_is_stored(
    app: TaskMQ, put: Callable[[TaskMQ], object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        put(app)

    assert app.definitions.list().definitions == []


@pytest.mark.parametrize("name", ["x" * 500, "x\0", "\ud800", ""])
def test_an_invalid_name_is_reported_as_unknown(app: TaskMQ, name: str) -> None:
    with pytest.raises(UnknownTask):
        app.jobs.submit(name)
    with pytest.raises(DefinitionNotFound):
        app.definitions.get(name)
    with pytest.raises(DefinitionNotFound):
        app.definitions.delete(name)
    assert app.jobs.count() == 0


def test_a_removed_task_is_reported_with_its_definition(app: TaskMQ, tmp_path: Path) -> None:
    app.definitions.put("monthly", "report", args=["jan", "2027-01-31"])

    with (
        TaskMQ("memory://other", store=f"sqlite:///{tmp_path}/jobs.db") as other,
        pytest.raises(UnknownTask, match="definition 'monthly' has task 'report'"),
    ):
        other.jobs.submit("monthly")


def test_a_task_with_the_name_of_a_definition_takes_precedence(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", args=["jan", "2027-01-31"])

    @app.task(name="monthly", queue="other")
    def monthly() -> None: ...

    record = app.jobs.get(app.jobs.submit("monthly").id)

    assert (record.task, record.queue, record.detail) == ("monthly", "other", None)


def test_definitions_without_a_store_say_what_is_missing() -> None:
    with TaskMQ("memory://definitions") as app, pytest.raises(UnsupportedFeature, match="store="):
        app.definitions.get("monthly")


def test_an_expiry_may_be_any_duration(app: TaskMQ) -> None:
    assert app.definitions.put("a", "report", expires=timedelta(seconds=1)).content.expires == 1_000
    assert app.definitions.put("b", "report", expires=1.5).content.expires == 1_500


def test_a_repeated_submission_with_types_of_the_task_is_the_same(app: TaskMQ) -> None:
    @app.task(name="read", queue="files")
    def read(path: Path, count: int = 1) -> None: ...

    app.definitions.put("nightly", read, kwargs={"count": 2})

    first = app.jobs.submit(
        "nightly", Path("/a"), job_id="a", labels={"x": "1", "y": "2"}, expires=timedelta(hours=1)
    )
    again = app.jobs.submit(
        "nightly", Path("/a"), job_id="a", labels={"y": "2", "x": "1"}, expires=timedelta(hours=1)
    )

    assert (first.id, app.jobs.count()) == (again.id, 1)
    with pytest.raises(EncodeError, match="nightly"):
        app.jobs.submit("nightly", "\ud800", job_id="b")


def test_a_store_without_definitions_says_so() -> None:
    class Plain:
        address = "plain://jobs"

    with TaskMQ("memory://definitions") as app:
        app.sessions.store = Plain  # type: ignore[method-assign, assignment]
        with pytest.raises(UnsupportedFeature, match="plain://jobs keeps neither definitions"):
            app.definitions.get("monthly")
