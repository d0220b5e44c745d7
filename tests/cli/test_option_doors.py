"""Every option of a job through every door that submits jobs, against a real server and store."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from taskmq.api.definitions import DefinitionBody
from taskmq.api.job_requests import SubmitBody
from taskmq.api.jobs import SubmittedJob
from taskmq.cli.server_link import text_of_instant
from taskmq.contracts.jobs import JobDetail, JobRecord
from taskmq.errors import TaskMQError
from taskmq.http import AsyncClient
from taskmq.model.envelope import decode_envelope
from taskmq.model.units import instant_text
from taskmq.tasks.job_options import DefinitionOptions, JobOptions
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.cli.doors import Site, open_site
from tests.cli.kit import run_here
from tests.nightly import nightly_except

pytestmark = pytest.mark.real_time

_WITHOUT: Final = {
    "lane": "a submission goes to the store",
    "headers": "a message has headers, and the store keeps none",
    "connection": "of a program's own transaction, see the tests of callers' transactions",
}
# The task of an option that "double" cannot have.
_TASKS: Final = {"order_key": "in_line"}
_LATER: Final = datetime(2099, 1, 31, 9, tzinfo=UTC)
_AT: Final = "2099-01-31T09:00:00+00:00"
_PLACE: Final = {"labels": {"zone": "a"}, "prefers": {"disk": "ssd"}, "patience": 7.0, "gang": ("render", 2)}


class _Value(msgspec.Struct, frozen=True):
    """A value of an option: in Python, in a JSON body, and as arguments of a command."""

    python: Any
    body: Mapping[str, Any]
    flags: tuple[str, ...]


_VALUES: Final[dict[str, _Value]] = {
    "queue": _Value("other", {"queue": "other"}, ("--queue", "other")),
    "priority": _Value(8, {"priority": "high"}, ("--priority", "8")),
    "delay": _Value("1h", {"delay": "1h"}, ("--delay", "1h")),
    "eta": _Value(_LATER, {"schedule_time": _AT}, ("--at", _AT)),
    "expires": _Value("2h", {"expires_in": "2h"}, ("--expires", "2h")),
    "job_id": _Value("mine", {"job_id": "mine"}, ("--job-id", "mine")),
    "order_key": _Value("a", {"order_key": "a"}, ("--order-key", "a")),
    "idempotency_key": _Value("b", {"idempotency_key": "b"}, ("--idempotency-key", "b")),
    "meta": _Value({"trace": "c"}, {"meta": {"trace": "c"}}, ("--meta", "trace=c")),
    "tenant": _Value("acme", {}, ("--tenant", "acme")),
    "timeout": _Value("90s", {"timeout": "90s"}, ("--timeout", "90s")),
    "max_attempts": _Value(3, {"max_attempts": 3}, ("--max-attempts", "3")),
    "retry": _Value(
        {"backoff": "constant", "base": "10s", "cap": "1m", "jitter": False},
        {"retry": {"backoff": "constant", "base": "10s", "cap": "1m", "jitter": False}},
        ("--retry", '{"backoff": "constant", "base": "10s", "cap": "1m", "jitter": false}'),
    ),
    "guarantee": _Value("at_most_once", {"guarantee": "at_most_once"}, ("--guarantee", "at_most_once")),
    "description": _Value("for people", {"description": "for people"}, ("--description", "for people")),
    "owner": _Value("root", {"owner": "root"}, ("--owner", "root")),
    "labels": _Value({"team": "ops"}, {"labels": {"team": "ops"}}, ("--label", "team=ops")),
    "resources": _Value({"cpu": 2}, {"resources": {"cpu": 2}}, ("--resources", '{"cpu": 2}')),
    "place": _Value(
        _PLACE,
        {"place": _PLACE},
        ("--node-label", "zone=a", "--prefer", "disk=ssd", "--patience", "7", "--gang", "render=2"),
    ),
    "preemptible": _Value(True, {"preemptible": True}, ("--preemptible",)),
    "held": _Value(True, {"held": True}, ("--held",)),
    "depends_on": _Value(
        [("first", "ended")],
        {"depends_on": [{"job_id": "first", "condition": "ended"}]},
        ("--depends-on", "ended=first"),
    ),
}
_SHOWN: Final[Mapping[str, Any]] = {
    "timeout": 90.0,
    "max_attempts": 3,
    "retry": {"backoff": "constant", "base": 10.0, "cap": 60.0, "jitter": False},
    "guarantee": "at_most_once",
    "resources": {"cpu": 2.0},
    "place": {**_PLACE, "gang": ["render", 2]},
    "preemptible": True,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("shop")) as found:
        yield found


def _keyword(name: str) -> dict[str, Any]:
    return {"at" if name == "eta" else name: _VALUES[name].python}


def _task(name: str) -> str:
    return _TASKS.get(name, "double")


def _by_many(site: Site, name: str) -> str:
    return site.app.jobs.submit_many(site.app.tasks[_task(name)].with_options({name: _VALUES[name].python}), [(1,)])[
        0
    ].id


def _by_client(site: Site, name: str) -> str:
    given = {} if name == "tenant" else _keyword(name)
    if name == "depends_on":
        given = dict(_VALUES[name].body)
    with site.client("acme" if name == "tenant" else None) as client:
        return client.jobs.submit(_task(name), 1, **given).id


def _by_async_client(site: Site, name: str) -> str:
    async def submit() -> str:
        whose = "acme" if name == "tenant" else None
        given = {} if name == "tenant" else _keyword(name)
        if name == "depends_on":
            given = dict(_VALUES[name].body)
        async with AsyncClient(site.url, token=site.token, insecure=True, tenant=whose) as client:
            return (await client.jobs.submit(_task(name), 1, **given)).id

    return asyncio.run(submit())


def _tenant(name: str) -> dict[str, str]:
    return {"tenant": "acme"} if name == "tenant" else {}


def _post_many(site: Site, name: str) -> str:
    (item,) = site.post([{"task": _task(name), "args": [1], **_VALUES[name].body}], **_tenant(name))["items"]
    assert item["status"] == "submitted", str(item)
    return str(item["id"])


def _by_client_bulk(site: Site, name: str) -> str:
    body = msgspec.convert({"task": _task(name), "args": [1], **_VALUES[name].body}, SubmitBody)
    with site.client("acme" if name == "tenant" else None) as client:
        (item,) = client.jobs.submit_many([body])
    assert isinstance(item, SubmittedJob), item
    return item.id


def _by_command(site: Site, name: str, *, is_remote: bool) -> str:
    return site.command("job", "submit", _task(name), "--args", "[1]", *_VALUES[name].flags, is_remote=is_remote)


_DOORS: Final[Mapping[str, Callable[[Site, str], str]]] = {
    "options": lambda site, name: site.app.tasks[_task(name)].with_options({name: _VALUES[name].python}).submit(1).id,
    "submit": lambda site, name: site.app.jobs.submit(site.app.tasks[_task(name)], 1, **_keyword(name)).id,
    "submit by name": lambda site, name: site.app.jobs.submit(_task(name), 1, **_keyword(name)).id,
    "submit_many": _by_many,
    "POST /jobs": lambda site, name: str(
        site.post({"job_type": _task(name), "args": [1], **_VALUES[name].body}, **_tenant(name))["id"]
    ),
    "POST /jobs of many": _post_many,
    "client": _by_client,
    "async client": _by_async_client,
    "client of many": _by_client_bulk,
    "command": lambda site, name: _by_command(site, name, is_remote=False),
    "command to a server": lambda site, name: _by_command(site, name, is_remote=True),
}
_SERVED: Final = frozenset(door for door in _DOORS if "POST" in door or "client" in door or "server" in door)


def _put(site: Site, name: str) -> None:
    site.app.definitions.put("template", "double", args=[1], **_keyword(name))


def _put_by_client(site: Site, name: str) -> None:
    body = msgspec.convert({"task": _task(name), "args": [1], **_VALUES[name].body}, DefinitionBody)
    with site.client("acme" if name == "tenant" else None) as client:
        client.definitions.put("template", body)


def _put_by_command(site: Site, name: str) -> None:
    found = run_here(
        site.folder,
        "--app",
        "shop:app",
        "definition",
        "put",
        "template",
        "double",
        "--args",
        "[1]",
        *_VALUES[name].flags,
    )
    assert found.code == 0, found.err


_OMITTED: Final = {
    # Through a server, the queue is the task's. An id names one job, not many.
    "queue": _SERVED,
    "job_id": frozenset({"submit_many"}),
}
_PUTS: Final = {"put": _put, "client": _put_by_client, "command": _put_by_command}


def _facts(record: JobRecord, name: str) -> dict[str, object]:
    """Return everything that an option can affect; times in minutes from the submission; for `eta`, from 1970."""
    since = 0 if name == "eta" else record.submitted
    times = {
        each: at and (at - since + 30_000) // 60_000
        for each, at in (("due", record.due), ("expires", record.expires))
    }
    envelope = decode_envelope(record.body)
    detail = replace(record.detail or JobDetail(), definition="", definition_version=0)
    if name != "owner":
        detail = replace(detail, owner="")
    return {
        "state": record.state, "tenant": record.tenant, "queue": record.queue, "priority": record.priority,
        "has_key": name == "job_id" and record.key is not None, "run": envelope.run,
        "keys": (envelope.order_key, envelope.key), "meta": envelope.meta,
        "detail": replace(detail, depends_on=tuple(replace(each, id="") for each in detail.depends_on)), **times,
    }  # fmt: skip


def _id_of(door: str) -> _Value:
    name = door.replace(" ", "-").replace("/", "")
    return _Value(name, {"job_id": name}, ("--job-id", name))


# These have a value of each kind.
_COMMON: Final = ("queue", "priority", "delay", "timeout", "retry", "meta")
_NIGHTLY: Final = pytest.mark.nightly(
    "tests/cli/test_option_doors.py::test_an_option_has_the_same_effect_through_every_door"
)


def test_every_option_of_a_job_is_walked_or_has_a_reason_not_to_be() -> None:
    assert _VALUES.keys() | _WITHOUT.keys() == set(JobOptions.__annotations__)


@pytest.mark.parametrize(
    "name", [*_COMMON, *(pytest.param(name, marks=_NIGHTLY) for name in _VALUES if name not in _COMMON)]
)
def test_an_option_has_the_same_effect_through_every_door(
    site: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _facts(site.app.jobs.get(site.app.jobs.submit(_task(name), 1).id), name)
    found: dict[str, dict[str, object]] = {}
    for door in sorted(_DOORS.keys() - _OMITTED.get(name, frozenset())):
        if name == "job_id":
            monkeypatch.setitem(_VALUES, name, _id_of(door))
        found[door] = _facts(site.app.jobs.get(_DOORS[door](site, name)), name)

    assert found == dict.fromkeys(found, found["options"])
    assert found["options"] != plain


@pytest.mark.parametrize("name", _SHOWN)
def test_an_option_of_a_run_or_a_place_is_shown_by_every_view(site: Site, name: str) -> None:
    job = site.app.jobs.submit("double", 1, **_keyword(name)).id
    answer = httpx.get(
        f"{site.url}/api/v1/jobs/{job}?fields=options", headers={"Authorization": f"Bearer {site.token}"}
    )
    command = run_here(site.folder, "--app", "shop:app", "--output", "json", "job", "show", job).data
    with site.client() as client:
        details = client.jobs.get(job, expand=["options"])

    found = [answer.json()["options"], command["options"], msgspec.json.decode(msgspec.json.encode(details.options))]
    assert found == [{name: _SHOWN[name]}] * 3


def test_the_options_of_a_job_are_shown_to_people(site: Site) -> None:
    given: dict[str, Any] = {name: _VALUES[name].python for name in ("timeout", "retry")}
    job = site.app.jobs.submit("double", 1, **given)
    found = run_here(site.folder, "--app", "shop:app", "job", "show", job.id)

    assert found.code == 0, found.err
    rows = [" ".join(line.split()) for line in found.out.splitlines()]
    pace = '{"backoff":"constant","base":10.0,"cap":60.0,"jitter":false}'
    assert {"timeout 1m 30s", f"retry {pace}"} <= {*rows}
    assert site.app.jobs.get(job.id).run.timeout == 90_000


def test_every_view_shows_the_time_that_was_asked_for_and_that_of_the_next_attempt(site: Site) -> None:
    async def fail_once() -> JobRecord:
        driver = JobDriver(site.app.sessions.store())
        job = await driver.dispatch_new(task="double", queue="work")
        return await driver.expect_accepted(job, "retry", delay=3_600_000)

    job = site.app.sessions.run_sync(fail_once(), instead="await it")
    asked, following = instant_text(job.scheduled_for), instant_text(job.due)
    headers = {"Authorization": f"Bearer {site.token}"}
    served = httpx.get(f"{site.url}/api/v1/jobs/{job.id}", headers=headers).json()
    command = run_here(site.folder, "--app", "shop:app", "--output", "json", "job", "show", job.id).data
    with site.client() as client:
        typed = client.jobs.get(job.id)
    shown = run_here(site.folder, "--app", "shop:app", "job", "show", job.id).out

    found = [(each["schedule_time"], each["due_at"]) for each in (served, command)]
    assert [*found, (typed.schedule_time, typed.due_at)] == [(asked, following)] * 3
    assert asked < following
    assert f"first_due {text_of_instant(asked)}" in " ".join(shown.split())


@pytest.mark.parametrize(
    "name",
    nightly_except(_COMMON, sorted(DefinitionOptions.__annotations__), _NIGHTLY),
)
def test_an_option_of_a_definition_has_the_same_effect_through_every_door(site: Site, name: str) -> None:
    wanted = _facts(site.app.jobs.get(_DOORS["options"](site, name)), name)
    found: dict[str, dict[str, object]] = {}
    for door in sorted(_PUTS.keys() - ({"client"} if name == "queue" else set())):
        _PUTS[door](site, name)
        found[door] = _facts(site.app.jobs.get(site.app.jobs.submit("template").id), name)
        site.app.definitions.delete("template")

    assert found == dict.fromkeys(found, wanted)


@pytest.mark.parametrize("door", _DOORS)
def test_an_option_that_the_task_does_not_allow_is_refused_at_every_door(
    site: Site, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "must be at most the task's, 3600 s"
    body = {"timeout": "2h"}
    monkeypatch.setitem(_VALUES, "timeout", _Value("2h", body, ("--timeout", "2h")))
    with pytest.raises((TaskMQError, httpx.HTTPStatusError, AssertionError)) as refused:
        _DOORS[door](site, "timeout")
    response = getattr(refused.value, "response", None)
    assert limit in (str(refused.value) if response is None else response.text)
