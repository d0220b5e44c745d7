"""Jobs of tasks whose code is elsewhere: checked against registrations by workers; on a SQLite file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import (
    EncodeError,
    InvalidArguments,
    InvalidOption,
    JobConflict,
    UnknownTask,
    UnsupportedFeature,
)
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.registrations import Origin, TaskRegistration
from taskmq.tasks.registration import registrations_of
from taskmq.testing import FakeClock
from tests.unit.app_kit import new_file_store
from tests.unit.store_kit import StagedStore


class Address(Struct):
    street: str
    number: int


@pytest.fixture
def code() -> TaskMQ:
    """Build an app with the tasks' code."""
    app = TaskMQ("memory://code")

    @app.task(name="report", queue="reports", priority=6, expires="1h", tenant="acme", meta={"a": "b"})
    def report(month: str, *years: int, region: Literal["eu", "us"] = "eu") -> str:
        """Make the report."""
        return month

    @app.task(name="ship", queue="shipping", retry=None)
    async def ship(to: list[Address]) -> None: ...

    @app.task(name="only", unique=True, idempotency_key="number")
    async def only(number: int) -> None: ...

    return app


@pytest.fixture
def app(tmp_path: Path, code: TaskMQ) -> Iterator[TaskMQ]:
    """Build an app without the code, on a store with registrations."""
    with TaskMQ("memory://no-code", store=new_file_store(tmp_path)) as app:
        _register(app, *registrations_of(code.tasks))
        yield app


def _register(app: TaskMQ, *registrations: TaskRegistration, origin: Origin = "broker") -> None:
    async def register() -> None:
        store = app.sessions.store()
        assert isinstance(store, Catalogued)
        await store.tasks.register(registrations, origin=origin, worker="w1")

    app.sessions.run_sync(register(), instead="")


def test_an_option_with_the_name_of_a_task_parameter_is_ambiguous(code: TaskMQ, app: TaskMQ) -> None:
    @code.task(name="statement")
    def statement(number: int, tenant: str = "") -> None: ...

    _register(app, *registrations_of(code.tasks))

    with pytest.raises(InvalidArguments, match="give the parameter by position"):
        app.jobs.submit("statement", 1, tenant="acme")
    app.jobs.submit("statement", 1, "globex", tenant="acme")
    assert [job.tenant for job in app.jobs.list().jobs] == ["acme"]


def test_the_ids_of_jobs_submitted_together_have_the_order_of_their_calls(app: TaskMQ) -> None:
    jobs = app.jobs.submit_many("report", [(str(number),) for number in range(50)])

    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert bytes(decode_envelope(app.jobs.get(jobs[7].id).body).args) == b'["7"]'


def test_a_job_goes_to_the_registered_queue_with_the_options_of_the_task(app: TaskMQ) -> None:
    job = app.jobs.submit("report", "jan", 2026, 2027, region="us")

    record = app.jobs.get(job.id)
    envelope = decode_envelope(record.body)
    assert (record.task, record.queue, record.priority, record.tenant) == ("report", "reports", 6, "acme")
    assert record.expires == record.submitted + 3_600_000
    assert (bytes(envelope.args), bytes(envelope.kwargs)) == (b'["jan",2026,2027]', b'{"region":"us"}')
    assert envelope.meta == {"a": "b"}
    assert job.task == "report"


def test_options_of_the_call_override_those_of_the_task(app: TaskMQ) -> None:
    job = app.jobs.submit("report", "jan", queue="other", priority=1, tenant="umbrella", job_id="x", delay="1h")

    record = app.jobs.get(job.id)
    assert (record.queue, record.priority, record.tenant, record.key) == ("other", 1, "umbrella", "x")
    again = app.jobs.submit("report", "jan", queue="other", priority=1, tenant="umbrella", job_id="x", delay="1h")
    assert again.id == job.id
    with pytest.raises(JobConflict):
        app.jobs.submit("report", "feb", queue="other", priority=1, tenant="umbrella", job_id="x", delay="1h")
    assert app.jobs.count() == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, '"month" is a required property'),
        ((7,), {}, 'not of type "string" - at `month`'),
        (("jan", "2026"), {}, r"at `years\[0\]`"),
        (("jan",), {"region": "fr"}, '"eu" or "us" - at `region`'),
        (("jan",), {"regoin": "eu"}, "regoin"),
        (("jan",), {"month": "feb"}, "'month' is passed twice"),
    ],
)
def test_mismatching_arguments_are_refused_by_the_name_of_the_field(
    app: TaskMQ, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArguments, match=reason) as refused:
        app.jobs.submit("report", *args, **kwargs)

    assert "task report" in str(refused.value)
    assert app.jobs.count() == 0


def test_an_invalid_nested_value_is_named_and_not_shown(app: TaskMQ) -> None:
    with pytest.raises(InvalidArguments, match=r"at `to\[1\]\.number`") as refused:
        app.jobs.submit("ship", [{"street": "a", "number": 1}, {"street": "b", "number": "secret" * 200_000}])

    assert "secret" not in str(refused.value)


def test_unencodable_values_are_refused(app: TaskMQ) -> None:
    with pytest.raises(EncodeError, match="task report"):
        app.jobs.submit("report", "\ud800")
    with pytest.raises(EncodeError, match="object"):
        app.jobs.submit("report", object())
    assert app.jobs.count() == 0


def test_values_are_encoded_as_the_code_of_the_task_would(app: TaskMQ) -> None:
    job = app.jobs.submit("ship", [Address("a", 1)])

    assert bytes(decode_envelope(app.jobs.get(job.id).body).args) == b'[[{"street":"a","number":1}]]'


def test_many_jobs_are_submitted_by_the_name_of_their_task(app: TaskMQ) -> None:
    jobs = app.jobs.submit_many("report", [("jan",), {"month": "feb"}])

    assert len({job.id for job in jobs}) == app.jobs.count() == 2


def test_a_task_with_keys_computed_in_code_is_submitted_by_that_code(app: TaskMQ) -> None:
    with pytest.raises(InvalidOption, match="unique=, idempotency_key="):
        app.jobs.submit("only", 1)


def test_the_arguments_of_a_job_are_changed_and_checked(app: TaskMQ) -> None:
    job = app.jobs.submit("report", "jan", delay="1h", tenant="umbrella")

    changed = app.jobs.change(job.id, args=["feb"], kwargs={"region": "us"})

    assert bytes(decode_envelope(changed.body).args) == b'["feb"]'
    with pytest.raises(InvalidArguments, match="region"):
        app.jobs.change(job.id, args=["feb"], kwargs={"region": "fr"})
    assert app.jobs.get(job.id).version == changed.version


def test_a_definition_may_use_a_registered_task(app: TaskMQ) -> None:
    app.definitions.put("monthly", "report", kwargs={"region": "us"})

    record = app.jobs.get(app.jobs.submit("monthly", "jan").id)

    assert (record.task, record.queue) == ("report", "reports")
    assert record.detail is not None
    assert record.detail.definition == "monthly"
    with pytest.raises(InvalidArguments, match="region"):
        app.definitions.put("monthly", "report", kwargs={"region": "fr"})
    with pytest.raises(InvalidOption, match="a task already has this name"):
        app.definitions.put("ship", "report")


def test_an_app_with_the_code_ignores_registrations(tmp_path: Path, code: TaskMQ) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    loose = TaskRegistration(task="report", queue="elsewhere")
    with TaskMQ("memory://code", store=store) as app:
        app.task(name="report", queue="reports")(code.tasks["report"].function)
        _register(app, loose)
        _register(app, loose, origin="app")

        assert app.jobs.get(app.jobs.submit("report", "jan").id).queue == "reports"
        with pytest.raises(InvalidArguments):
            app.jobs.submit("report", 7)


def test_the_broker_cannot_loosen_the_registration_of_a_scheduler(app: TaskMQ, code: TaskMQ) -> None:
    _register(app, *registrations_of(code.tasks), origin="app")
    _register(app, TaskRegistration(task="report", queue="elsewhere"))

    with pytest.raises(InvalidArguments):
        app.jobs.submit("report", 7)
    assert app.jobs.get(app.jobs.submit("report", "jan").id).queue == "reports"


def test_tasks_are_listed_and_found_without_their_code(app: TaskMQ) -> None:
    page = app.jobs.catalogue.list(limit=2)

    assert [one.registration.task for one in page.tasks] == ["only", "report"]
    assert [one.registration.task for one in app.jobs.catalogue.list(after=page.after).tasks] == ["ship"]
    assert app.jobs.catalogue.list("sh").after is None
    found = app.jobs.catalogue.find("report")
    assert found is not None
    assert (found.registration.description, found.worker, found.origin) == ("Make the report.", "w1", "broker")
    assert found.registration.facts.max_attempts == 5
    assert app.jobs.catalogue.find("nothing") is None


@pytest.mark.parametrize("name", ["raport", "x" * 500, "\0", "\ud800"])
def test_an_unregistered_name_is_unknown(app: TaskMQ, name: str) -> None:
    with pytest.raises(UnknownTask, match="taskmq task list"):
        app.jobs.submit(name)
    assert app.jobs.count() == 0


@pytest.mark.real_time
async def test_a_changed_registration_applies_within_five_seconds(code: TaskMQ) -> None:
    clock = FakeClock()
    store = StagedStore(clock=clock)
    app = TaskMQ("memory://no-code", clock=clock)
    (registration,) = [one for one in registrations_of(code.tasks) if one.task == "report"]

    catalogue = app.jobs.catalogue
    app.sessions.job_store = lambda _: store
    await store.tasks.register([registration], origin="broker")
    first = await catalogue.signature("report")
    clock.advance(1)
    await store.tasks.register([replace(registration, queue="other")], origin="broker")
    assert await catalogue.signature("report") is first
    clock.advance(5)
    second = await catalogue.signature("report")
    assert second is not None
    assert second.registration.queue == "other"
    clock.advance(5)
    assert await catalogue.signature("report") is second
    await app.aclose()


def test_a_task_with_unresolvable_annotations_is_not_registered(code: TaskMQ) -> None:
    async def lose_value(value: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    code.task(name="lost")(lose_value)

    assert [one.task for one in registrations_of(code.tasks)] == ["only", "report", "ship"]


def test_a_job_is_refused_without_the_package_that_checks_schemas(
    app: TaskMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema_rs", None)

    with pytest.raises(UnsupportedFeature, match=r"taskmq\[schemas\]"):
        app.jobs.submit("report", "jan")
    assert app.jobs.count() == 0
