"""Every call that names an object, with ids of a foreign tenant's objects: 404 for its scope, not its absence.

The calls are those of the OpenAPI document. A new call that names something outside `_THERE` fails here until an id
is added; each id works for its owner, who gets no 404.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from httpx import Response

from taskmq.app_api.workflow_files.reader import read_workflow
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.history import history_of
from taskmq.contracts.identity import Actor, NewApiToken, NewBrowserSession, NewUser, Tenant
from taskmq.model.history.failure_groups import FailureKey
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.history.rollups import RunFailure
from taskmq.model.identity import RULES, Level, Membership, Permission, Role, may, session_key, token_key
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.topology import WorkQueue
from taskmq.server import EventSource
from taskmq.server.examples import EXAMPLES
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.nightly import nightly_except
from tests.unit.server.kit import CALLERS, Site, open_site

_OWNER: Final = "other-admin"
_INSTANCE: Final = "all-admin"
_ROLES: Final = [f"acme-{role}" for role in Role]
_THERE: Final = {
    "/api/v1/jobs/{job_id}": "job",
    "/api/v1/bulk/operations/{bulk_id}": "bulk",
    "/api/v1/schedules/{name}": "schedule",
    "/api/v1/workflows/{name}": "named workflow",
    "/api/v1/runs/{run_id}": "run",
    "/api/v1/runs/{run_id}/steps/{step}": "step",
    "/api/v1/definitions/{name}": "definition",
    "/api/v1/alerts/rules/{name}": "rule",
    "/api/v1/alerts/silences/{silence_id}": "silence",
    "/api/v1/failures/groups/{group_id}": "failure group",
    "/api/v1/members/{user}": "member",
    "/api/v1/tokens/{token_id}": "token",
    "/api/v1/sessions/{session_id}": "session",
    "/api/v1/users/{user_id}": "user",
    "/api/v1/users/{user_id}/sessions/{session_id}": "user session",
    "/api/v1/users/{user_id}/tokens/{token_id}": "user token",
    "/api/v1/users/{user_id}/roles/{role_tenant}": "tenant",
    "/api/v1/tenants/{name}": "tenant",
    "/api/v1/pools/{name}": "tenant",
    "/api/v1/quotas/{name}": "tenant",
    "/api/v1/queues/{name}": "queue",
    "/api/v1/dead-letters/{queue}": "queue",
    "/api/v1/nodes/{name}": "node",
}
"""By the path up to a parameter: what the foreign tenant, or the instance, has there."""
_IN_QUERY: Final = {
    "job_id": "job", "run_id": "run", "user_id": "user", "subject": "job", "source": "source", "node_id": "node",
    "of_tenant": "tenant", "user": "member",
}  # fmt: skip
"""Parameters of queries that name something."""
# Tasks belong to the app, for all tenants, and reactions to none. A stream does not end: `test_events` covers it.
_NOT_CALLED: Final = {"getTask", "getReaction", "putReaction", "removeReaction", "followEvents"}
# They name objects of the caller from then on.
_MAKES: Final = ("putSchedule", "putDefinition", "putAlertRule", "putWorkflow")
_LAST: Final = (*_MAKES, "eraseUser", "removeTenant")
_ORDER: Final = ("GET", "POST", "PATCH", "PUT", "DELETE")


class Operation(NamedTuple):
    """A call that names an object; `kinds` are those of its path parameters."""

    name: str
    method: str
    path: str
    kinds: list[str]
    query: dict[str, str]
    body: Any
    permission: Permission

    @property
    def level(self) -> Level:
        return RULES[self.permission].level

    def ask(self, site: Site, by: str, ids: Mapping[str, str]) -> Response:
        path = self.path
        for kind in self.kinds:
            begin, _, rest = path.partition("{")
            path = begin + ids[kind] + rest.partition("}")[2]
        query = {name: ids[kind] for name, kind in self.query.items()}
        if self.name == "getQueue":
            # There is no worker that could answer.
            query["within"] = "0.01"
        body = self.body
        if self.name in {"purgeQueue", "moveMessages", "purgeDeadLetters"}:
            body = {**body, "name": ids["queue"], **({"to": "billing"} if "to" in body else {})}
        if self.name == "changeUser":
            # A disabled user has no sessions.
            body = {"email": "ann@example.com"}
        if self.name == "backfillSchedule":
            body = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T12:00:00Z", "dry_run": True}
        return site(self.method, path, body, by=by, params=query)


class Foreign(NamedTuple):
    """A site where tenant `other` has one object of each kind, and the calls.

    Attributes:
        ids: by kind, as the owner knows them.
        full: alternative ids: those of the store, or with the tenant in front.
        absent: ids of missing objects.
    """

    site: Site
    ids: dict[str, str]
    full: list[dict[str, str]]
    absent: dict[str, str]
    operations: list[Operation]

    def attempts(self) -> Iterator[tuple[Operation, Mapping[str, str], Mapping[str, str]]]:
        """Return each call with existing ids and with missing ones."""
        for named in self.full:
            absent = {kind: re.sub(r"[\w-]+$", self.absent[kind], name) for kind, name in named.items()}
            for each in self.operations:
                if each.name not in _LAST and named.keys() & {*each.kinds, *each.query.values()}:
                    yield each, {**self.ids, **named}, {**self.absent, **absent}
        for each in self.operations:
            yield each, self.ids, self.absent

    def read_everything(self) -> dict[str, str]:
        """Return everything that the owner and the instance can read."""
        return {
            each.name: each.ask(self.site, _owner(each), self.ids).text
            for each in self.operations
            if each.method == "GET" and each.name not in {"getQueue", "explainJob"}
        }


def _owner(operation: Operation) -> str:
    return _INSTANCE if operation.level is Level.INSTANCE else _OWNER


def _operations(document: dict[str, Any]) -> list[Operation]:
    found: list[Operation] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            said = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
            unknown = {name for name in said if name.endswith("_id")} - _IN_QUERY.keys()
            assert not unknown, f"{operation['operationId']}: add the objects that {unknown} names to _IN_QUERY"
            query = {name: kind for name, kind in _IN_QUERY.items() if name in said}
            is_about_something = "{" in path or query
            if operation["operationId"] in _NOT_CALLED or not is_about_something or not operation["security"]:
                continue
            # A key missing here is a kind of object that no foreign tenant has yet.
            kinds = [_THERE[path[: end + 1]] for end, letter in enumerate(path) if letter == "}"]
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            permission = operation["description"].rpartition("Permission: `")[2].removesuffix("`.")
            found.append(
                Operation(
                    operation["operationId"], method.upper(), path, kinds, query, content.get("example"),
                    Permission(permission),
                )
            )  # fmt: skip
    # Skip objects that an earlier call has removed.
    return sorted(found, key=lambda each: (each.name in _LAST, _ORDER.index(each.method), -each.path.count("/")))


async def _populate(site: Site, ids: dict[str, str]) -> None:
    """Create what has no HTTP call: users with sessions, a workflow, a log, messages and dead letters."""
    store = site.app.sessions.store()
    accounts, credentials, by = store.identity.accounts, store.identity.credentials, Actor(user="tests")
    for tenant in ("acme", "other"):
        await accounts.add_tenant(Tenant(name=tenant), by=by)
    roles = (Membership("other", Role.VIEWER),)
    for user_id, name in ((_OWNER, _OWNER), (ids["user"], "cyd"), (str(uuid.uuid4()), ids["member"])):
        await accounts.add_user(NewUser(id=user_id, name=name, memberships=roles), by=by)
    for kind, user_id in (("session", _OWNER), ("user session", ids["user"])):
        key = session_key(uuid.uuid4().bytes * 2)
        session = NewBrowserSession(id=ids[kind], user_id=user_id, digest=key.digest, idle_ms=10**7, longest_ms=10**7)
        await credentials.add_session(session, by=by)
        digest = token_key(uuid.uuid4().bytes * 2).digest
        token = NewApiToken(id=ids[kind.replace("session", "token")], user_id=user_id, name="ci", digest=digest)
        await credentials.add_token(token, by=by)
    runs = RunDriver(store)
    content = read_workflow(EXAMPLES["putWorkflow"].body["text"].encode(), "yaml").content
    await runs.runs.put_workflow("other", ids["named workflow"], encode_workflow(content)[1])
    ids["run"] = await runs.start(tenant="other", workflow=ids["named workflow"])
    job = await JobDriver(store).dispatch_new(
        tenant="other", key=ids["job"], queue="of-other", task="data_processing"
    )
    line = RunLine(await store.now_ms(), 20, "shop", "a line")
    assert await history_of(store).logs.add([RunLog(id=job.id, token=job.token, lines=[line])]) == 1
    failure = RunFailure(at=line.at, job=ids["job"], event="dead", task="report", queue="work", tenant="other")
    await history_of(store).rollups.add([], [failure])
    broker = site.app.sessions.current().broker
    await broker.declare([WorkQueue("work"), WorkQueue("billing")])
    for queue in ("work", "work.dlq"):
        headers = {"x-taskmq-reason": "error", "x-taskmq-error": "OSError: full", "x-taskmq-origin": "work"}
        body = b'{"id": "m", "tenant": "other", "task": "data_processing", "attempt": 3}'
        message = Outgoing(
            queue=queue,
            body=body,
            content_type="application/json",
            job_id="m",
            task="data_processing",
            headers=headers,
        )
        await broker.publish(message, timeout=10)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Foreign]:
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    source = EventSource(name="shop", task="data_processing", tenant="other", secrets=("of the shop and of us",))
    with open_site(tmp_path, sources=[source]) as site:
        ids = {
            "job": "order-17", "schedule": "hourly", "definition": "monthly", "rule": "late",
            "named workflow": "nightly", "member": "ann", "queue": "work", "tenant": "other", "source": "shop",
            "node": "render-1", "step": "extract", "failure group": FailureKey("other", "report", "dead").id,
        }  # fmt: skip
        ids |= {kind: str(uuid.uuid4()) for kind in ("user", "session", "token", "user session", "user token")}
        with site.client.portal() as portal:
            portal.call(_populate, site, ids)
        for path, body, by in (
            ("/schedules/hourly", {"task": "report", "every": 3600}, _OWNER),
            ("/definitions/monthly", {"task": "data_processing"}, _OWNER),
            ("/alerts/rules/late", {"metric": "failures", "threshold": 1}, _OWNER),
            ("/pools/other", {"weight": 2}, _INSTANCE),
            ("/quotas/other", {"a_day": 1_000}, _INSTANCE),
            ("/quotas/other?user=ann", {"a_day": 1_000}, _INSTANCE),
            ("/queues/work/policy", {"policy": "fair"}, _INSTANCE),
        ):
            answer = site("PUT", path, body, by=by)
            assert answer.is_success, (path, answer.text)
        node: Any = {"name": ids["node"], "ip": "10.0.0.9", "capacity": {"cpu": 8}}
        for kind, path, body, by, field in (
            ("bulk", "/bulk/operations", {"action": "hold", "filter": "task:absent"}, _OWNER, "bulk_id"),
            ("silence", "/alerts/silences", {"seconds": 3600}, _OWNER, "id"),
            ("node", "/nodes/register", node, _INSTANCE, "name"),
        ):
            ids[kind] = site("POST", path, body, by=by).json()[field]
        absent = {kind: str(uuid.uuid4()) if _is_uuid(made) else f"no-{kind[:4]}" for kind, made in ids.items()}
        # Queues are shared: a tenant only owns letters in them.
        absent["queue"] = "billing"
        operations = _operations(site("GET", "/api/openapi.json", by=None).json())
        job = site("GET", f"/jobs/{ids['job']}", by=_OWNER).json()["id"]
        full = {kind: f"@other:{ids[kind]}" for kind in ("job", "schedule", "definition", "rule")}
        yield Foreign(site, ids, [{"job": job}, full], absent, operations)


def _is_uuid(text: str) -> bool:
    return len(text) == 36


def _strip_answer(answer: Response, operation: Operation, ids: Mapping[str, str]) -> tuple[int, Any]:
    """Return an answer without the requested ids and its number."""
    text = answer.text
    for kind in (*operation.kinds, *operation.query.values()):
        text = re.sub(rf"(?<![\w-])(@acme:)?{re.escape(ids[kind])}(?![\w-])", "ID", text)
    found: Any = json.loads(text) if "json" in answer.headers["content-type"] else text
    if isinstance(found, dict):
        found.pop("request_id", None)
    return answer.status_code, found


def _differences(foreign: Foreign, by: str) -> list[str]:
    """Return calls whose answer reveals that a foreign object exists."""
    found: list[str] = []
    for each, known, unknown in foreign.attempts():
        there, absent = (each.ask(foreign.site, by, ids) for ids in (known, unknown))
        if each.level is Level.INSTANCE or each.permission not in _permissions(by):
            wanted = {403}
        elif each.name in _LAST:
            wanted = {200, 201}
        elif each.kinds == ["queue"]:
            wanted = {200}
        elif each.kinds or each.name in {"getJobStatusCompat", "searchLogs", "queryLogsCompat", "sendEvent"}:
            wanted = {404}
        else:
            wanted = {200}
        is_alike = each.name in _LAST or _strip_answer(there, each, known) == _strip_answer(absent, each, unknown)
        if there.status_code not in wanted or not is_alike:
            found.append(f"{each.name}: {there.status_code} {there.text[:300]} | {absent.text[:300]}")
    return found


def _permissions(by: str) -> set[Permission]:
    return {each for each in Permission if may(CALLERS[by], each, "acme")}


@pytest.mark.parametrize(
    "by",
    nightly_except(
        {"acme-viewer", "acme-admin"},
        _ROLES,
        pytest.mark.nightly(
            "tests/unit/server/test_foreign_ids.py::test_a_foreign_object_is_indistinguishable_from_a_missing_one"
        ),
    ),
)
def test_a_foreign_object_is_indistinguishable_from_a_missing_one(foreign: Foreign, by: str) -> None:
    before = foreign.read_everything()

    assert "\n".join(_differences(foreign, by)) == ""

    assert foreign.read_everything() == before


def test_each_foreign_id_works_for_its_owner(foreign: Foreign) -> None:
    refused: list[str] = []

    for each in foreign.operations:
        answer = each.ask(foreign.site, _owner(each), foreign.ids)
        if answer.status_code in {400, 403, 404} or answer.status_code >= 500:
            refused.append(f"{each.name}: {answer.status_code} {answer.text[:300]}")

    assert len(foreign.operations) > 60
    assert "\n".join(refused) == ""
