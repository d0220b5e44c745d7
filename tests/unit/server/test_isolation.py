"""Nothing crosses between tenants: each is answered as if there were no other, whatever the other does.

Two servers: on one a tenant acts alone; on the other a second tenant does things of its own in between, with the same
ids, keys, schedules, definitions and workflows. What the first is answered has to be the same on both, but for ids
that were made up, times, and numbers that count all entries.

`TASKMQ_TEST_ISOLATION_EXAMPLES` says how many pairs of histories are tried, 25 by default.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from litestar.connection import ASGIConnection
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.contracts.identity import Actor, Tenant
from taskmq.model.identity import Identity, Membership, Role
from taskmq.model.telemetry.events import JobEvent
from taskmq.server import ServerSettings, build
from taskmq.server.live.stream import EventFilter
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site, define

Step = tuple[str, str, Any]
"""Method, path and body of a request; or `flow` or `event`, its id, and what it is about."""

_EXAMPLES = int(os.environ.get("TASKMQ_TEST_ISOLATION_EXAMPLES", "25"))
_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?")
# Of requests, and of audit entries, which are numbered over all tenants.
# How many others wait in a queue is told, and not who.
_SHARED = re.compile(r"\d+ other tenants have jobs in that queue, too|its pool is due .*")
_COUNTED = {"request_id", "number", "next"}
_IDS = st.sampled_from(["one", "two"])
_TASKS = st.sampled_from(["data_processing", "billing.charge", "single", "monthly", "absent"])
_KEYS = st.sampled_from(["a", "b"])
_EVERY = st.sampled_from([3600, 7200])


def _request(method: str, path: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    body = st.fixed_dictionaries(fields) if fields else st.none()
    return _IDS.flatmap(lambda name: st.tuples(st.just(method), st.just(path.format(name)), body))


_JOBS = st.one_of(
    _request("POST", "/jobs", job_id=_IDS, job_type=_TASKS, payload=st.fixed_dictionaries({"key": _KEYS})),
    _request("POST", "/jobs", job_id=_IDS, job_type=st.just("data_processing"), held=st.booleans()),
    _request("POST", "/jobs", job_type=st.just("single"), payload=st.fixed_dictionaries({"key": _KEYS})),
    _request("KEYED", "/jobs", job_type=st.just("data_processing"), payload=st.fixed_dictionaries({"key": _KEYS})),
    _request("PATCH", "/jobs/{}", priority=st.integers(0, 9)),
    _request("PUT", "/jobs/{}", payload=st.fixed_dictionaries({"key": _KEYS})),
    *(_request(method, f"/jobs/{{}}{rest}") for method, rest in (
        ("DELETE", ""), ("POST", "/hold"), ("POST", "/release"), ("POST", "/retry"),
        ("GET", "?expand=payload,result,logs,retries"), ("GET", "/history"), ("GET", "/attempts"),
        ("GET", "/explain"),
    )),
    _request("POST", "/jobs/{}/clone", job_id=st.just("copy")),
    *(st.just(("GET", path, None)) for path in (
        "/jobs", "/jobs/count", "/jobs?filter=status:cancelled", "/jobs?filter=id:one,two", "/jobs?limit=200",
        "/jobs?filter=key:one", "/jobs?filter=-task:single",
    )),
    st.builds(
        lambda action, dry: ("POST", "/bulk", {"action": action, "filter": "task:data_*", "dry_run": dry}),
        st.sampled_from(["cancel", "hold", "release", "retry"]),
        st.booleans(),
    ),
)  # fmt: skip
_OTHERS = st.one_of(
    _request("PUT", "/definitions/monthly", task=st.just("data_processing"), kwargs=st.just({"key": "c"})),
    *(st.just((method, path, None)) for method, path in (
        ("GET", "/definitions"), ("GET", "/definitions/monthly"), ("GET", "/definitions/monthly/versions"),
        ("DELETE", "/definitions/monthly"), ("GET", "/schedules"), ("GET", "/audit?limit=200"), ("GET", "/members"),
        ("GET", "/tenants"),
    )),
    _request("PUT", "/schedules/{}", task=_TASKS, every=_EVERY),
    *[_request("PUT", "/schedules/{}", task=st.just("data_processing"), every=_EVERY)] * 3,
    _request("POST", "/schedules/{}/pause", note=_KEYS),
    *(_request(method, f"/schedules/{{}}{rest}") for method, rest in (
        ("GET", ""), ("GET", ""), ("POST", "/resume"), ("POST", "/run"), ("DELETE", ""),
    )),
    st.tuples(st.just("flow"), _IDS, _KEYS),
    st.tuples(st.just("event"), _IDS, st.sampled_from(["started", "dead"])),
    _request("GET", "/workflows/{}"),
    _request("POST", "/workflows/{}/cancel", reason=_KEYS),
)  # fmt: skip
_STEP: st.SearchStrategy[Step] = st.one_of(_JOBS, _OTHERS)
# At the end everything that there is is looked at.
_LOOKS: Sequence[Step] = [
    ("GET", path, None)
    for path in (
        "/jobs", "/jobs/count", "/jobs/one", "/jobs/two", "/jobs/copy", "/definitions", "/schedules",
        "/schedules/one", "/workflows", "/workflows/one", "/workflows/two", "/audit?limit=200", "/members",
        "/tenants",
    )
]  # fmt: skip


class Town:
    """A served app with tenants of which each has an admin, and what each has been told of events."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def add(self, tenant: str) -> None:
        async def add() -> None:
            accounts = self.site.app.sessions.store().identity.accounts
            await accounts.add_tenant(Tenant(name=tenant), by=Actor(user="tests"))

        self._run(add)

    def take(self, tenant: str, step: Step) -> str:
        """What the tenant's admin is answered, without what is made up."""
        method, path, body = step
        if method == "event":
            self.site.hub._tell(_event(tenant, path, body))
            return ""
        if method == "flow":
            return self._flow(tenant, path, body)
        headers = {"Idempotency-Key": "k"} if method == "KEYED" else {}
        answer = self.site(method.replace("KEYED", "POST"), path, body, by=tenant, headers=headers)
        return f"{answer.status_code} {_plain(answer.json(), tenant)}"

    def _flow(self, tenant: str, name: str, key: str) -> str:
        async def send() -> str:
            flow = await self.site.app.tasks["data_processing"].s(key).asend(flow_id=name, tenant=tenant)
            return flow.id

        return _plain(self._run(send), tenant)

    def _run(self, call: Any) -> Any:
        with self.site.client.portal() as portal:
            return portal.call(call)


def _event(tenant: str, name: str, kind: str) -> JobEvent:
    return JobEvent(event=kind, number=1, at=1, job_id=f"@{tenant}:{name}", task="t", queue="q", tenant=tenant)


def _plain(value: Any, tenant: str) -> str:
    """An answer without what is made up, times and the tenant's name; lists in an order of their own."""
    return json.dumps(_masked(value, tenant), sort_keys=True)


def _masked(value: Any, tenant: str) -> Any:
    if isinstance(value, dict):
        return {name: _masked(each, tenant) for name, each in value.items() if name not in _COUNTED}
    if isinstance(value, list):
        kept = [each for each in value if not (isinstance(each, str) and _SHARED.fullmatch(each))]
        return sorted((_masked(each, tenant) for each in kept), key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, str):
        return _INSTANT.sub("-", _MADE_UP.sub("-", value.replace(tenant, "TENANT")))
    return value


@contextmanager
def open_town(url: str) -> Iterator[Town]:
    app = TaskMQ(new_url(), store=url)
    define(app)

    @app.task(name="single", queue="work", unique="{key}")
    def single(key: str) -> None: ...

    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        name = connection.headers["authorization"].removeprefix("Bearer ")
        roles = (Membership(name, Role.ADMIN),)
        return Identity(user_id=f"u-{name}", user=name, memberships=roles, via="session", credential=name)

    edge = build(app, identify=identify, settings=ServerSettings())
    with TestClient(edge, raise_server_exceptions=False) as client:
        yield Town(Site(app, client, edge))


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Town, Town]]:
    folder: Path = tmp_path_factory.mktemp("towns")
    with (
        open_town(f"sqlite:///{folder}/alone.db?synchronous=normal") as alone,
        open_town(f"sqlite:///{folder}/both.db?synchronous=normal") as both,
    ):
        yield alone, both


_numbers = count()


@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=st.lists(_STEP, min_size=5, max_size=25), theirs=st.lists(_STEP, min_size=5, max_size=25))
@example(
    mine=[("POST", "/jobs", {"job_type": "single", "payload": {"key": "a"}}), ("flow", "one", "a")],
    theirs=[
        ("PUT", "/schedules/one", {"task": "data_processing", "every": 3600}),
        ("POST", "/jobs", {"job_type": "single", "payload": {"key": "a"}}), ("flow", "one", "b"),
        ("POST", "/workflows/one/cancel", {"reason": "b"}),
    ],
)  # fmt: skip
def test_a_tenant_is_answered_as_if_there_were_no_other(
    towns: tuple[Town, Town], mine: list[Step], theirs: list[Step]
) -> None:
    alone, both = towns
    # New ones for each example, beside all earlier ones.
    number = next(_numbers)
    tenant, other = f"first{number}x", f"second{number}x"
    alone.add(tenant)
    for each in (tenant, other):
        both.add(each)
    fits = EventFilter(tenant=tenant)

    for place, step in enumerate([*mine, *_LOOKS]):
        if place < len(theirs):
            told = both.take(other, theirs[place])
            assert tenant not in told
        expected, found = alone.take(tenant, step), both.take(tenant, step)
        assert found == expected, step
        assert other not in found

    told_of = [step for step in mine if step[0] == "event"]
    everything = [_event(tenant, *step[1:]) for step in mine if step[0] == "event"]
    everything += [_event(other, *step[1:]) for step in theirs if step[0] == "event"]
    assert [event.tenant for event in everything if fits(event)] == [tenant] * len(told_of)
