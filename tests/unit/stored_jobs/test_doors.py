"""Every door accepts every option of a job or is listed here with a reason: a forgotten new option fails."""

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_overloads

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ, WorkQueue
from taskmq.api.job_requests import SubmitBody, UpstreamJob
from taskmq.app_api.jobs.orders import order_of
from taskmq.cli.jobs import stored_jobs
from taskmq.contracts.jobs import JobDetail, JobRecord
from taskmq.model.jobs.definitions import DefinitionContent
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.stored_jobs import Jobs
from taskmq.stored_jobs.definitions import DefinitionOptions
from taskmq.tasks.job_options import JobOptions, SubmitOptions
from taskmq.tasks.task import Task

pytestmark = pytest.mark.real_time

_OF_SENDING: Final = {
    "lane": "a submission goes to the store",
    "order_key": "ordered queues are for jobs that are sent",
    "idempotency_key": "a job of the store has its job_id",
    "meta": "for programs that send",
    "headers": "of messages",
}
_AT: Final = {"at": "eta"}


def _keywords(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def _by_name(function: Callable[..., Any]) -> set[str]:
    return _keywords(get_overloads(function)[0])


_DOORS: Final[Mapping[str, tuple[set[str], Mapping[str, str], Mapping[str, str]]]] = {
    # The accepted options, their names in the door, and the omitted ones.
    "app.jobs.submit": (set(SubmitOptions.__annotations__), _AT, _OF_SENDING),
    "app.jobs.submit, by name": (_by_name(Jobs.submit), _AT, _OF_SENDING),
    "app.jobs.asubmit, by name": (_by_name(Jobs.asubmit), _AT, _OF_SENDING),
    "taskmq job submit": (
        _keywords(stored_jobs.submit) - {"args", "kwargs"},
        {**_AT, "label": "labels", "node_label": "place"},
        {**_OF_SENDING, "connection": "of a program's own"},
    ),
    # Its client accepts the fields of the body: tests/unit/http/test_client.py.
    "POST /jobs": (
        {*SubmitBody.__struct_fields__} - {"job_type", "task", "payload", "kwargs", "args"},
        {"schedule_time": "eta", "expires_at": "expires", "expires_in": "expires", "node_labels": "place"},
        {
            **_OF_SENDING,
            "connection": "of a program's own",
            "tenant": "that of the caller",
        },
    ),
    "a definition": (
        {*DefinitionContent.__struct_fields__} - {"task", "args", "kwargs"},
        {},
        {
            **_OF_SENDING,
            **dict.fromkeys(("delay", "eta", "job_id", "held", "depends_on", "connection"), "of one job"),
            "tenant": "that of the definition",
            **dict.fromkeys(("resources", "place", "preemptible"), "its task says so, or a submission does"),
        },
    ),
}


@pytest.mark.parametrize("door", _DOORS)
def test_a_door_accepts_every_option_or_has_a_reason_not_to(door: str) -> None:
    taken, names, without = _DOORS[door]

    assert {names.get(name, name) for name in taken} == set(JobOptions.__annotations__) - without.keys()


def test_a_definition_is_stored_with_its_options() -> None:
    assert set(DefinitionOptions.__annotations__) == _DOORS["a definition"][0]


_LATER: Final = datetime(2099, 1, 31, 9, tzinfo=UTC)
_VALUES: Final[Mapping[str, object]] = {
    "queue": "work",
    "priority": 8,
    "delay": "1h",
    "eta": _LATER,
    "expires": "2h",
    "job_id": "order-17",
    "tenant": "acme",
    "description": "for people",
    "owner": "bob",
    "labels": {"team": "ops"},
    "resources": {"cpu": 2},
    "place": {"labels": {"zone": "a"}},
    "preemptible": True,
    "held": True,
    "depends_on": [("first", "ended")],
}
_IN_BODIES: Final[Mapping[str, Mapping[str, object]]] = {
    "eta": {"schedule_time": _LATER},
    "expires": {"expires_in": "2h"},
    "place": {"node_labels": {"zone": "a"}},
    "depends_on": {"depends_on": [UpstreamJob(job_id="first", condition="ended")]},
}


async def _by_options(app: TaskMQ, name: str) -> str:
    return (await _task(app).with_options({name: _VALUES[name]}).asubmit(1)).id


async def _by_submit(app: TaskMQ, name: str) -> str:
    given: dict[str, Any] = {"at" if name == "eta" else name: _VALUES[name]}
    return (await app.jobs.asubmit(_task(app), 1, **given)).id


async def _by_definition(app: TaskMQ, name: str) -> str:
    await app.definitions.aput("twice", "double", args=[1], tenant="acme" if name == "tenant" else "")
    given: dict[str, Any] = {"at" if name == "eta" else name: _VALUES[name]}
    return (await app.jobs.asubmit("twice", **given)).id


async def _by_body(app: TaskMQ, name: str) -> str:
    fields: dict[str, Any] = {**_IN_BODIES.get(name, {name: _VALUES[name]})}
    order = order_of(SubmitBody(job_type="double", args=[1], **fields))
    return (await TenantJobs(app, None, by="", is_at_app=True).submit(order)).id


def _task(app: TaskMQ) -> Task[..., Any]:
    return app.tasks["double"]


def _facts(job: JobRecord) -> dict[str, object]:
    """Return everything that an option can affect; times in minutes from the submission."""
    times = {name: at and (at - job.submitted) // 60_000 for name, at in (("due", job.due), ("expires", job.expires))}
    detail = replace(job.detail or JobDetail(), definition="", definition_version=0)
    return {
        "state": job.state, "tenant": job.tenant, "queue": job.queue, "priority": job.priority, "key": job.key,
        "detail": replace(detail, depends_on=tuple(replace(each, id="") for each in detail.depends_on)), **times,
    }  # fmt: skip


_WAYS: Final = {"options": _by_options, "submit": _by_submit, "definition": _by_definition, "body": _by_body}


@pytest.mark.parametrize("name", _VALUES)
async def test_an_option_has_the_same_effect_through_every_door(tmp_path: Path, name: str) -> None:
    found: dict[str, dict[str, object]] = {}
    plain: dict[str, object] = {}
    for way, submit in _WAYS.items():
        if way == "body" and name in _DOORS["POST /jobs"][2]:
            continue
        url = f"sqlite:///{tmp_path}/{way}.db"
        async with TaskMQ("memory://", store=url, queues=[WorkQueue("work", placed=True)]) as app:
            app.task(name="double", queue="work")(_double)
            await app.jobs.asubmit("double", 1, job_id="first")
            plain = _facts(await app.jobs.aget((await app.jobs.asubmit("double", 1)).id))
            found[way] = _facts(await app.jobs.aget(await submit(app, name)))

    assert all(facts == found["options"] for facts in found.values())
    assert name == "queue" or found["options"] != plain


def _double(number: int) -> int:
    return 2 * number
