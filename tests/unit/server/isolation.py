"""Two served apps: on one a tenant acts alone, on the other a second tenant acts too.

Both tenants use the same ids, keys and names. Each asks for the other's objects by the other's name in `?tenant=`,
by full ids, and by the ids of its objects. The answers to a tenant must be equal at both apps, except for generated
ids, times, and numbers that count all entries.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from litestar.connection import ASGIConnection
from litestar.testing import TestClient

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.history import HistoryStore, history_of
from taskmq.contracts.identity import Actor, NewUser, Tenant
from taskmq.contracts.jobs import DispatchedJob, JobStore, partition_key
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, RunFailure, minute_of
from taskmq.model.identity import EVERYWHERE, Identity, Membership, Role
from taskmq.model.jobs.pools import pool_group, preemption_reason
from taskmq.model.jobs.reports import PREEMPTED
from taskmq.model.outcome import ErrorRecord
from taskmq.model.telemetry.events import JobEvent
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.signals import LiveWorkers
from taskmq.server import EventSource, ServerSettings
from taskmq.server.live import identify_signed
from taskmq.server.live.sources import sign
from taskmq.server.live.stream import EventFilter
from taskmq.testing.job_store_suite.driver import JobDriver, error
from taskmq.workflow.runs.service import RunService
from tests.servers import eventually
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site, build_served, define

Step = tuple[str, str, Any]
"""Method, path and body of a request; or something else that is done, its id, and what it is about."""

# The ids of notices derive from the times of their alerts, too.
_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?")
# Tenants may read how many other tenants wait in a queue, but not their names.
_SHARED = re.compile(r"\d+ other tenants? ha(?:s|ve) jobs in that queue|its pool gets .*")
# Of requests, audit entries and log lines, which are numbered across all tenants.
_COUNTED = {"request_id", "number", "next"}
_INSTANCE: Final = "instance"
"""An admin of the instance, who belongs to no tenant."""
_ANN: Final = f"{0:08}-0000-0000-0000-{0:012}"
_SECRET: Final = "of the shop of "
# A past time: its counts are in the same points whenever they are requested.
_PAST: Final = 30_000_000 * MINUTE
_SPAN: Final = "since=2027-01-15T00:00:00Z&until=2027-01-15T02:00:00Z"
_IDS = st.sampled_from(["one", "two"])
_NAMES = st.sampled_from(["one", "two", "@OTHER:one", "THEIR-JOB"])
_TASKS = st.sampled_from(["data_processing", "billing.charge", "single", "monthly", "absent"])
_KEYS = st.sampled_from(["a", "b"])
_EVERY = st.sampled_from([3600, 7200])
_ACTIONS = st.sampled_from(["cancel", "hold", "release", "retry"])


def _request(
    method: str, path: str, names: st.SearchStrategy[str] = _IDS, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Step]:
    body = st.fixed_dictionaries(fields) if fields else st.none()
    return names.flatmap(lambda name: st.tuples(st.just(method), st.just(path.format(name)), body))


def _all_steps(*paths: str) -> list[st.SearchStrategy[Step]]:
    return [st.just(("GET", path, None)) for path in paths]


_JOBS = st.one_of(
    _request("POST", "/jobs", job_id=_NAMES, job_type=_TASKS, payload=st.fixed_dictionaries({"key": _KEYS})),
    _request("POST", "/jobs", job_id=_IDS, job_type=st.just("data_processing"), held=st.booleans()),
    _request("POST", "/jobs", job_type=st.just("single"), payload=st.fixed_dictionaries({"key": _KEYS})),
    _request("KEYED", "/jobs", job_type=st.just("data_processing"), payload=st.fixed_dictionaries({"key": _KEYS})),
    _request(
        "POST", "/jobs", job_id=_IDS, job_type=st.just("data_processing"), depends_on=st.lists(_NAMES, max_size=2)
    ),
    _request("PATCH", "/jobs/{}", _NAMES, priority=st.integers(0, 9)),
    _request("PUT", "/jobs/{}", _NAMES, payload=st.fixed_dictionaries({"key": _KEYS})),
    *(_request(method, f"/jobs/{{}}{rest}", _NAMES) for method, rest in (
        ("DELETE", ""), ("POST", "/hold"), ("POST", "/release"), ("POST", "/retry"),
        ("GET", "?expand=payload,result,logs,retries"), ("GET", "/history"), ("GET", "/attempts"),
        ("GET", "/explain"),
    )),
    _request("POST", "/jobs/{}/clone", _NAMES, job_id=st.just("copy")),
    *_all_steps(
        "/jobs", "/jobs/count", "/jobs?filter=status:cancelled", "/jobs?filter=id:one,two", "/jobs?limit=200",
        "/jobs?filter=key:one", "/jobs?filter=-task:single", "/jobs?tenant=OTHER", "/jobs?filter=tenant:OTHER",
        "/jobs/count?filter=id:THEIR-JOB", "/jobs/counts?filter=status:failed&filter=task:data_*&max_age=60",
        "/jobs/status?job_id=one", "/jobs/status?job_id=@OTHER:one",
    ),
    st.builds(
        lambda action, dry, which: ("POST", "/bulk", {"action": action, "filter": which, "dry_run": dry}),
        _ACTIONS,
        st.booleans(),
        st.sampled_from(["task:data_*", "tenant:OTHER", "id:THEIR-JOB"]),
    ),
)  # fmt: skip
_BULKS = st.one_of(
    *(
        st.builds(
            lambda method, action, which: (method, "/bulk/operations", {"action": action, "filter": which}),
            st.just(method),
            _ACTIONS,
            st.sampled_from(["task:data_*", "tenant:OTHER", "id:THEIR-JOB", "status:held,queued,failed"]),
        )
        for method in ("POST", "KEYED")
    ),
    *_all_steps("/bulk/operations", "/bulk/operations/OWN-BULK", "/bulk/operations/THEIR-BULK"),
    st.sampled_from([("DELETE", f"/bulk/operations/{whose}-BULK", None) for whose in ("OWN", "THEIR")]),
)
_OTHERS = st.one_of(
    _request("PUT", "/definitions/monthly", task=st.just("data_processing"), kwargs=st.just({"key": "c"})),
    *(st.just((method, path, None)) for method, path in (
        ("GET", "/definitions"), ("GET", "/definitions/monthly"), ("GET", "/definitions/monthly/versions"),
        ("GET", "/definitions/@OTHER:monthly"), ("DELETE", "/definitions/monthly"), ("GET", "/schedules"),
        ("GET", "/audit?limit=200"), ("GET", "/audit?action=jobs."), ("GET", "/audit?kind=alert&subject=one"),
        ("GET", "/audit?tenant=OTHER"), ("GET", "/members"), ("GET", "/tenants"), ("GET", "/members?tenant=OTHER"),
    )),
    _request("PUT", "/members/ann", role=st.sampled_from(["viewer", "operator"])),
    st.just(("DELETE", "/members/ann", None)),
    _request("PUT", "/schedules/{}", task=_TASKS, every=_EVERY),
    *[_request("PUT", "/schedules/{}", _NAMES, task=st.just("data_processing"), every=_EVERY)] * 3,
    _request("POST", "/schedules/{}/pause", _NAMES, note=_KEYS),
    *(_request(method, f"/schedules/{{}}{rest}", _NAMES) for method, rest in (
        ("GET", ""), ("GET", "/next"), ("GET", "/explain"), ("POST", "/resume"), ("POST", "/run"), ("DELETE", ""),
    )),
    st.tuples(st.just("run"), _IDS, _KEYS),
    *[st.tuples(st.just("letter"), _IDS, _KEYS)] * 2,
    *_all_steps(
        "/dead-letters", "/dead-letters/work", "/dead-letters/work/groups", "/dead-letters/work?tenant=OTHER"),
    _request("POST", "/dead-letters/work/replay", job=_NAMES),
    _request("POST", "/dead-letters/work/purge", name=st.just("work"), job=_NAMES),
    st.tuples(st.just("event"), _IDS, st.sampled_from(["started", "dead"])),
    *_all_steps(
        "/workflows", "/workflows/nightly", "/workflows/nightly/versions", "/workflows?tenant=OTHER",
        "/runs", "/runs?filter=tenant:OTHER", "/runs?filter=workflow:n*", "/runs?tenant=OTHER",
    ),
    _request(
        "PUT",
        "/workflows/nightly",
        text=st.sampled_from([f"steps: {{a: {{task: data_processing, args: [{key}]}}}}" for key in "ab"]),
    ),
    _request("POST", "/workflows/nightly/start", labels=st.just({"team": "a"})),
    _request("GET", "/runs/{}", _NAMES),
    _request("POST", "/runs/{}/cancel", _NAMES, reason=_KEYS),
    *(_request("POST", f"/runs/{{}}/{verb}", _NAMES) for verb in ("close", "redrive")),
)  # fmt: skip
_HISTORY = st.one_of(
    *[st.tuples(st.just("log"), st.sampled_from(["started", "failed", "succeeded"]), _KEYS)] * 3,
    st.tuples(st.just("preempt"), st.just(""), st.booleans()),
    *[st.tuples(st.just("count"), _KEYS, st.sampled_from(["succeeded", "dead"]))] * 3,
    *_all_steps(
        "/jobs/OWN-JOB/explain", "/jobs/OWN-JOB/history", "/jobs/OWN-JOB?expand=logs",
        "/jobs/OWN-JOB/logs", "/jobs/THEIR-JOB/logs", "/jobs/OWN-JOB/logs/text", "/jobs/THEIR-JOB/logs/text", "/logs",
        "/logs?text=line", "/logs?job_id=THEIR-JOB", "/logs?level=error&task=data_processing", "/logs?tenant=OTHER",
        "/logs/query?text=a", "/logs/query?job_id=THEIR-JOB", "/rollups", "/rollups?by=tenant", "/rollups?by=",
        f"/rollups?by=task,tenant&{_SPAN}", f"/metrics/query?metric=ended,failures,run_p95&{_SPAN}",
        f"/metrics/query?metric=ended&by=tenant,task&max_age=60&{_SPAN}", "/rollups?tenant=OTHER",
        "/metrics/get?name=ended&start_time=2027-01-15T00:00:00Z&end_time=2027-01-15T02:00:00Z", "/failures",
        "/failures/groups?since=2026-01-01T00:00:00Z",
        "/failures?task=task-a&error=ValueError", "/failures?job_id=one", "/failures?tenant=OTHER",
    ),
)  # fmt: skip
_ALERTS = st.one_of(
    *[
        _request(
            "PUT",
            "/alerts/rules/{}",
            metric=st.sampled_from(["failures", "ended"]),
            threshold=st.sampled_from([0, 1]),
            each=st.sampled_from(["", "task"]),
            window=st.just(3600),
            channels=st.just(["https://hooks.example.com/of/us"]),
            unless=st.lists(_IDS, max_size=1),
        )
    ]
    * 2,
    _request("POST", "/alerts/setup", name=_IDS, metric=st.just("failures"), threshold=st.just(0)),
    _request("DELETE", "/alerts/rules/{}"),
    _request("POST", "/alerts/rules/{}/test"),
    _request("POST", "/alerts/silences", seconds=st.just(3600), rule=st.sampled_from(["", "one"])),
    st.sampled_from([("DELETE", f"/alerts/silences/{whose}-SILENCE", None) for whose in ("OWN", "THEIR")]),
    *[st.just(("watch", "", None))] * 2,
    *_all_steps(
        "/alerts", "/alerts?states=firing", "/alerts/rules", "/alerts/silences", "/alerts/notices",
        "/alerts?tenant=OTHER",
    ),
)  # fmt: skip
_EVENTS = st.one_of(
    *[st.tuples(st.just("signed"), st.sampled_from(["own", "own", "theirs", "forged"]), _KEYS)] * 3,
    st.sampled_from([("POST", f"/events?source=shop-{whose}", {"order": 1}) for whose in ("OTHER", "TENANT")]),
)
_LIMITS = st.one_of(
    st.tuples(st.just("quota"), st.sampled_from(["queued", "a_day"]), st.sampled_from([None, 0, 2])),
    st.tuples(st.just("pool"), st.sampled_from(["", "1", "5"]), st.none()),
)
STEPS: Final[st.SearchStrategy[list[Step]]] = st.lists(
    st.one_of(_JOBS, _BULKS, _OTHERS, _HISTORY, _ALERTS, _EVENTS, _LIMITS), min_size=5, max_size=25
)
"""The calls of one tenant."""
# At the end every object is read.
_LOOKS: Final[Sequence[Step]] = [
    ("watch", "", None),
    *(
        ("GET", path, None)
        for path in (
            "/jobs", "/jobs/count", "/jobs/one", "/jobs/two", "/jobs/copy", "/definitions", "/schedules",
            "/schedules/one", "/runs", "/runs/one", "/runs/two", "/audit?limit=200", "/members",
            "/tenants", "/bulk/operations", "/logs", "/rollups?by=task,queue,tenant", "/failures", "/alerts",
            "/failures/groups?since=2026-01-01T00:00:00Z",
            "/alerts/rules", "/alerts/silences", "/alerts/notices", "/jobs/THEIR-JOB", "/jobs/THEIR-JOB/logs",
            "/bulk/operations/THEIR-BULK", "/dead-letters", "/dead-letters/work", "/dead-letters/work/groups",
        )
    ),
]  # fmt: skip
_MAKES: Final[list[Step]] = [
    ("POST", "/jobs", {"job_id": "one", "job_type": "data_processing", "payload": {"key": "a"}}),
    ("POST", "/jobs", {"job_type": "single", "payload": {"key": "a"}}),
    ("PUT", "/definitions/monthly", {"task": "data_processing", "kwargs": {"key": "c"}}),
    ("PUT", "/schedules/one", {"task": "data_processing", "every": 3600}),
    ("PUT", "/members/ann", {"role": "viewer"}),
    ("run", "one", "a"),
    ("letter", "one", "a"),
    ("preempt", "", False),
    ("GET", "/jobs/OWN-JOB/explain", None),
    ("preempt", "", True),
    ("GET", "/jobs/OWN-JOB/explain", None),
    ("GET", "/jobs/OWN-JOB?expand=logs", None),
    ("log", "failed", "a"),
    ("count", "a", "dead"),
    ("signed", "own", "a"),
    ("PUT", "/alerts/rules/one", {"metric": "failures", "threshold": 0, "window": 3600, "channels": [
        "https://hooks.example.com/of/us",
    ]}),
    ("POST", "/alerts/rules/one/test", None),
    ("POST", "/alerts/silences", {"seconds": 3600}),
    ("GET", "/jobs/counts?filter=status:failed&max_age=60", None),
    ("GET", f"/metrics/query?metric=ended&max_age=60&{_SPAN}", None),
]  # fmt: skip
_MAKES_MORE: Final[list[Step]] = [
    *_MAKES,
    ("KEYED", "/bulk/operations", {"action": "hold", "filter": "task:data_*"}),
    ("quota", "queued", 0),
    ("pool", "5", None),
]
# Objects of the other tenant, by every possible reference.
_TRIES: Final[list[Step]] = [
    *(
        (method, f"/jobs/{name}{rest}", body)
        for name in ("@OTHER:one", "THEIR-JOB")
        for method, rest, body in (
            ("GET", "", None), ("GET", "/history", None), ("GET", "/logs", None), ("POST", "/hold", None),
            ("POST", "/retry", None), ("PATCH", "", {"priority": 1}), ("POST", "/clone", {"job_id": "copy"}),
            ("DELETE", "", None),
        )
    ),
    *(
        ("POST", "/jobs", {"job_type": "data_processing", "depends_on": [name]})
        for name in ("one", "@OTHER:one", "THEIR-JOB")
    ),
    *(
        (method, path, None)
        for method, path in (
            ("GET", "/schedules/@OTHER:one"), ("POST", "/schedules/@OTHER:one/pause"),
            ("POST", "/schedules/@OTHER:one/run"), ("DELETE", "/schedules/@OTHER:one"),
            ("GET", "/dead-letters/work?job=@OTHER:one"), ("GET", "/dead-letters/work?tenant=OTHER"),
            ("GET", "/runs/@OTHER:one"), ("POST", "/runs/@OTHER:one/cancel"),
            ("GET", "/definitions/@OTHER:monthly"), ("GET", "/bulk/operations/THEIR-BULK"),
            ("DELETE", "/bulk/operations/THEIR-BULK"), ("DELETE", "/alerts/silences/THEIR-SILENCE"),
            ("DELETE", "/members/ann"), ("GET", "/logs?job_id=THEIR-JOB"), ("GET", "/jobs?filter=tenant:OTHER"),
            ("GET", "/audit?tenant=OTHER"), ("GET", "/alerts?tenant=OTHER"), ("DELETE", "/alerts/rules/one"),
            ("DELETE", "/definitions/monthly"), ("GET", "/jobs/counts?filter=status:failed&max_age=60"),
            ("GET", f"/metrics/query?metric=ended&max_age=60&{_SPAN}"),
        )
    ),
    ("POST", "/events?source=shop-OTHER", {"order": 1}),
    ("POST", "/dead-letters/work/replay", {"job": "@OTHER:one"}),
    ("POST", "/dead-letters/work/purge", {"name": "work", "job": "@OTHER:one"}),
    ("signed", "theirs", "a"),
    ("POST", "/bulk", {"action": "cancel", "filter": "tenant:OTHER"}),
    ("POST", "/bulk/operations", {"action": "cancel", "filter": "id:THEIR-JOB"}),
    ("KEYED", "/bulk/operations", {"action": "cancel", "filter": "task:data_*"}),
]  # fmt: skip
EXAMPLES: Final[dict[str, tuple[list[Step], list[Step]]]] = {
    "one asks for what the other has": ([*_MAKES, *_TRIES], _MAKES_MORE),
    "the other asks for what one has": (
        [*_MAKES, *[("GET", "/jobs", None)] * (len(_TRIES) + 3)],
        [*_MAKES_MORE, *_TRIES],
    ),
    "one has nothing": ([*[("GET", "/jobs", None)] * len(_MAKES_MORE), *_TRIES], _MAKES_MORE),
}
"""Pairs of histories with something of each kind in them."""

_numbers = count()


class Town:
    """A served app with tenants, each with an admin; `made` are the ids of each tenant's latest objects."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.made: dict[tuple[str, str], str] = {}
        self._tenants: set[str] = set()
        self._do: dict[str, Callable[[str, str, Any], str]] = {
            "run": self._start_run, "event": self._event, "log": self._log, "count": self._count,
            "signed": self._send_signed, "quota": self._quota, "pool": self._pool, "preempt": self._preempt,
            "letter": self._letter, "watch": self._watch,
        }  # fmt: skip
        self._run(self._add_users)

    async def _add_users(self) -> None:
        accounts = self.site.app.sessions.store().identity.accounts
        await accounts.add_user(NewUser(id=_ANN, name="ann"), by=Actor(user="tests"))
        await self.site.app.sessions.current().broker.declare([WorkQueue("work")])

    def add(self, tenant: str) -> None:
        """Add a tenant whose shop may send events."""

        async def add() -> None:
            accounts = self.site.app.sessions.store().identity.accounts
            await accounts.add_tenant(Tenant(name=tenant), by=Actor(user="tests"))
            await accounts.set_membership(_ANN, Membership(tenant, Role.VIEWER), by=Actor(user="tests"))

        self._run(add)
        self._tenants.add(tenant)
        source = EventSource(name=f"shop-{tenant}", task="on_event", tenant=tenant, secrets=(_SECRET + tenant,))
        self.site.served.litestar.state["sources"][source.name] = source

    def leave(self, tenant: str) -> None:
        """End everything that the tenant has in progress."""
        for name in ("one", "two"):
            self.site("DELETE", f"/alerts/rules/{name}", by=tenant)
        for quota in ("queued", "a_day"):
            self._quota(tenant, quota, None)
        self._pool(tenant, "", None)
        self.site("POST", "/dead-letters/work/purge", {"name": "work"}, by=tenant)
        self.site.served.litestar.state["sources"].pop(f"shop-{tenant}")
        self.site.served.litestar.state.get("samples", {}).clear()

    def take(self, tenant: str, other: str, step: Step, theirs: dict[str, str]) -> str:
        """Return the answer to the tenant's admin without generated values.

        Args:
            theirs: ids of the other tenant's objects, by kind; they may come from another town.
        """
        method, path, body = json.loads(self._name_path(json.dumps(step), tenant, other, theirs))
        if (do := self._do.get(method)) is not None:
            return _plain(do(tenant, path, (body, other)), tenant, other)
        headers = {"Idempotency-Key": "k"} if method == "KEYED" else {}
        answer = self.site(method.replace("KEYED", "POST"), path, body, by=tenant, headers=headers)
        content: Any = answer.json() if "json" in answer.headers["content-type"] else answer.text
        if answer.is_success and path == "/bulk/operations" and body is not None:
            self.made[tenant, "BULK"] = content["bulk_id"]
            self._await_bulk(tenant, content["bulk_id"])
            # Its progress by the time of the answer is random.
            content = self.site("GET", f"/bulk/operations/{content['bulk_id']}", by=tenant).json()
        if answer.is_success and path == "/alerts/silences" and body is not None:
            self.made[tenant, "SILENCE"] = content["id"]
        return f"{answer.status_code} {answer.headers.get('etag')} {_plain(content, tenant, other)}"

    def kinds(self, tenant: str) -> dict[str, str]:
        """Return the ids of a tenant's latest objects, by kind."""
        return {kind: made for (whose, kind), made in self.made.items() if whose == tenant}

    def _name_path(self, step: str, tenant: str, other: str, theirs: dict[str, str]) -> str:
        for kind in ("BULK", "SILENCE", "JOB"):
            step = step.replace(f"OWN-{kind}", self.made.get((tenant, kind), "absent"))
            step = step.replace(f"THEIR-{kind}", theirs.get(kind, "absent"))
        return step.replace("OTHER", other).replace("TENANT", tenant)

    def _await_bulk(self, tenant: str, bulk_id: str) -> None:
        def is_over() -> bool:
            return self.site("GET", f"/bulk/operations/{bulk_id}", by=tenant).json()["ended"] is not None

        eventually(is_over, f"bulk {bulk_id} ends")

    def _event(self, tenant: str, name: str, facts: Any) -> str:
        self.site.hub._publish(event_of(tenant, name, facts[0]))
        return ""

    def _start_run(self, tenant: str, name: str, facts: Any) -> str:
        async def start() -> str:
            step = self.site.app.tasks["data_processing"].s(facts[0])
            service = RunService(self.site.app.sessions)
            return await service.start(step.plan(), run_id=name, tenant=tenant, name="made")

        return str(self._run(start))

    def _letter(self, tenant: str, name: str, facts: Any) -> str:
        """Let a sent job of the tenant die."""
        said: dict[str, Any] = {"id": f"@{tenant}:{name}", "tenant": tenant, "task": "data_processing", "attempt": 1}
        letter = Outgoing(
            queue="work.dlq",
            body=json.dumps(said).encode(),
            content_type="application/json",
            job_id=said["id"],
            task="data_processing",
            headers={"x-taskmq-reason": "error", "x-taskmq-error": f"E: {facts[0]}", "x-taskmq-origin": "work"},
        )

        async def publish() -> None:
            await self.site.app.sessions.current().broker.publish(letter, timeout=10)

        self._run(publish)
        return ""

    def _log(self, tenant: str, end: str, facts: Any) -> str:
        """Run a job of the tenant that logs a line and then ends, or does not."""

        async def log(driver: JobDriver, job: DispatchedJob) -> str:
            line = RunLine(await driver.store.now_ms(), 40, "shop", f"line {facts[0]}")
            added = await self._history.logs.add([RunLog(id=job.id, token=job.token, lines=[line])])
            more = {"error": error("no")} if end == "failed" else {"result": b"1"} if end == "succeeded" else {}
            await driver.expect_accepted(job, end, **more)  # type: ignore[arg-type]
            return f"{added} line"

        return self._dispatch_job(tenant, log)

    def _preempt(self, tenant: str, _: str, facts: Any) -> str:
        """Preempt a job of the tenant for one of the other's, or of a third one if there is no other."""
        for_whom = facts[1] if facts[1] in self._tenants else "a-third-one"

        async def preempt(driver: JobDriver, job: DispatchedJob) -> str:
            reason = preemption_reason(pool_group(for_whom))
            running = await driver.expect_accepted(job, "started")
            await driver.expect_update(running, kind="preempt_requested", note=reason)
            if facts[0]:
                why = ErrorRecord(type_name=PREEMPTED, message=reason)
                await driver.expect_accepted(job, "interrupted", error=why)
            return ""

        return self._dispatch_job(tenant, preempt)

    def _dispatch_job(self, tenant: str, then: Callable[[JobDriver, DispatchedJob], Awaitable[str]]) -> str:
        """Dispatch a job of the tenant for a later event."""

        async def dispatch() -> str:
            driver, queue = JobDriver(self._store), f"of-{tenant}"
            submitted = await driver.try_submit(tenant=tenant, queue=queue, task="data_processing")
            if submitted.exceeded is not None:
                return f"beyond its quota: {submitted.exceeded.limit}"
            (job,) = [one for one in (await driver.dispatch(queue=queue)).jobs if one.id == submitted.id]
            self.made[tenant, "JOB"] = job.id
            said = await then(driver, job)
            # Every tenant may read whether a partition has a scheduler.
            partition = driver.schedulers.partition_of(queue)
            await driver.schedulers.leases.release(partition_key(partition), token=await driver.epoch(partition))
            return said

        return str(self._run(dispatch))

    def _count(self, tenant: str, name: str, facts: Any) -> str:
        """Report runs of a task of the tenant, now and in the past."""

        async def add() -> None:
            now = await self._store.now_ms()
            counted: list[Rollup] = []
            for minute in (minute_of(now), _PAST):
                counted.append(Rollup(RollupKey(minute, f"task-{name}", "work", tenant), {facts[0]: 1}))
                counted[-1].ran.add(2.0)
            failure = RunFailure(
                at=_PAST,
                job="one",
                event="dead",
                task=f"task-{name}",
                queue="work",
                tenant=tenant,
                error="ValueError",
            )
            await self._history.rollups.add(counted, [failure] if facts[0] == "dead" else [])

        self._run(add)
        return ""

    def _watch(self, _: str, __: str, ___: Any) -> str:
        """Evaluate all rules like a scheduler."""

        async def look() -> None:
            await AlertWatch(
                self.site.app, self._store, self._history.alerts, LiveWorkers(), AlertSettings(), me="watch"
            ).evaluate_all()

        self._run(look)
        return ""

    def _send_signed(self, tenant: str, whose: str, facts: Any) -> str:
        """Send an event of the tenant's shop, or one that claims another tenant."""
        key, other = facts
        source = other if whose == "theirs" else tenant
        secret = "not the shop's, and long" if whose == "forged" else _SECRET + tenant
        content = json.dumps({"order": key}).encode()
        at = self.site.app.sessions.clock.now_ms() // 1000
        headers = {
            "Taskmq-Signature": sign(secret, content, event_id=key, at=at), "Content-Type": "application/json"
        }  # fmt: skip
        answer = self.site("POST", f"/events?source=shop-{source}", by=None, content=content, headers=headers)
        return f"{answer.status_code} {_plain(answer.json(), tenant, other)}"

    def _quota(self, tenant: str, name: str, facts: Any) -> str:
        """Set the tenant's submission quota."""
        limit = None if facts is None else facts[0]
        if limit is None:
            return str(self.site("DELETE", f"/quotas/{tenant}", by=_INSTANCE).status_code)
        return str(self.site("PUT", f"/quotas/{tenant}", {name: limit}, by=_INSTANCE).status_code)

    def _pool(self, tenant: str, weight: str, _: Any) -> str:
        """Set the tenant's share."""
        if not weight:
            return str(self.site("DELETE", f"/pools/{tenant}", by=_INSTANCE).status_code)
        return str(self.site("PUT", f"/pools/{tenant}", {"weight": int(weight)}, by=_INSTANCE).status_code)

    @property
    def _store(self) -> JobStore:
        return self.site.app.sessions.store()

    @property
    def _history(self) -> HistoryStore:
        return history_of(self._store)

    def _run(self, call: Any) -> Any:
        with self.site.client.portal() as portal:
            return portal.call(call)


def event_of(tenant: str, name: str, kind: str) -> JobEvent:
    """Return a worker event about a job of the tenant."""
    return JobEvent(event=kind, number=1, at=1, job_id=f"@{tenant}:{name}", task="t", queue="q", tenant=tenant)


def _plain(value: Any, tenant: str, other: str) -> str:
    """Return an answer without generated values, times and tenant names; lists are sorted."""
    return json.dumps(_mask_value(value, tenant, other), sort_keys=True)


def _mask_value(value: Any, tenant: str, other: str) -> Any:
    if isinstance(value, dict):
        return {name: _mask_value(each, tenant, other) for name, each in value.items() if name not in _COUNTED}
    if isinstance(value, list):
        kept = [each for each in value if not (isinstance(each, str) and _SHARED.fullmatch(each))]
        found = [_mask_value(each, tenant, other) for each in kept]
        return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, str):
        return _INSTANT.sub("-", _MADE_UP.sub("-", value.replace(tenant, "TENANT")))
    return value


@contextmanager
def open_town(url: str) -> Iterator[Town]:
    """Serve an app with its jobs at this URL."""
    app = TaskMQ(new_url(), store=url)
    define(app)

    @app.task(name="single", queue="work", unique="{key}")
    def single(key: str) -> None: ...

    @app.task(name="on_event", queue="work")
    def on_event(event: dict[str, Any]) -> None: ...

    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        name = connection.headers["authorization"].removeprefix("Bearer ")
        roles = (Membership(EVERYWHERE if name == _INSTANCE else name, Role.ADMIN),)
        return Identity(user_id=f"u-{name}", user=name, memberships=roles, via="session", credential=name)

    # Both towns are queried as fast as they answer.
    edge = build_served(app, identify=identify, settings=ServerSettings(rate=0))
    edge.litestar.state["identify"] = identify_signed(identify, edge.litestar.state["sources"])
    with pytest.MonkeyPatch.context() as patch, TestClient(edge, raise_server_exceptions=False) as client:
        # No scheduler runs.
        patch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
        yield Town(Site(app, client, edge))


def check_isolation(alone: Town, both: Town, mine: list[Step], theirs: list[Step]) -> None:
    """Let two new tenants act, the second in one town only, and compare the answers to the first in both."""
    # New tenants for each example, beside all earlier ones.
    number = next(_numbers)
    tenant, other = f"first{number}x", f"second{number}x"
    alone.add(tenant)
    for each in (tenant, other):
        both.add(each)

    is_named = any("OTHER" in json.dumps(step) or step[1] == "theirs" for step in mine)
    for place, step in enumerate([*mine, *_LOOKS]):
        if place < len(theirs) and theirs[place][0] != "watch":
            both.take(other, tenant, theirs[place], both.kinds(tenant))
        known = both.kinds(other)
        expected, found = alone.take(tenant, other, step, known), both.take(tenant, other, step, known)
        assert found == expected, step
        # Two server errors are equal, too.
        assert not found.startswith("5"), (step, found)
        assert is_named or other not in found

    alone.leave(tenant)
    for each in (tenant, other):
        both.leave(each)
    fits = EventFilter(tenant=tenant)
    events = [event_of(tenant, *step[1:]) for step in mine if step[0] == "event"]
    others = [event_of(other, *step[1:]) for step in theirs if step[0] == "event"]
    assert [event for event in [*events, *others] if fits(event)] == events
