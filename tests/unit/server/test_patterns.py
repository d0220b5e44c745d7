"""Callers may only read objects of tasks that they may not call.

The calls are those of the OpenAPI document: a new call with a change fails here until its effect on objects of such
a task is declared, or its independence of tasks.
"""

import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.history import history_of
from taskmq.contracts.identity import Actor, NewApiToken, NewBrowserSession, NewUser, Tenant
from taskmq.model.history.failure_groups import FailureKey, FailureMark
from taskmq.model.identity import RULES, Level, Membership, Permission, Role, session_key, token_key
from taskmq.model.topology import WorkQueue
from taskmq.reactions import ReactionRule, StoredReactions
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from tests.servers import eventually
from tests.unit.server.kit import Site, open_site

_JOB: Final = {"job_type": "data_processing", "job_id": "new"}
_RULE: Final = {"metric": "failures", "threshold": 1, "task": "data_*"}
_SCHEDULE: Final = {"task": "billing.charge", "kwargs": {"amount": 1}, "every": 60}
_PAST: Final = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T12:00:00Z"}
_MEMBER: Final = {"role": "viewer", "tasks": ["billing.*"]}
_ROLES: Final = [{"tenant": "acme", "role": "submitter"}]
_CONTENT: Final = content_of({"a": {"task": "data_processing"}}, workflow="nightly")
_FILE: Final = "workflow: nightly\nsteps: {a: {task: data_processing}}"
_NESTED: Final = content_of({"a": {"workflow": "middle"}}, workflow="outer")
_NESTED_STEPS: Final = "steps: {a: {workflow: middle}}"
_HARMLESS: Final = "steps: {a: {task: billing.charge, with: {amount: 1}}}"


class _Call(NamedTuple):
    """A call that changes an object of a task that the caller may not call."""

    path: str
    body: Any = None
    by: str = "picky"


_ENDS: Final = {"kind": "job", "tasks": ["data_processing"], "states": ["failed"]}
_REFUSED: Final = {
    "submitJobs": _Call("/jobs", _JOB),
    "createJobCompat": _Call("/jobs/create", {"name": "data_processing", "parameters": {}}),
    "scheduleJobCompat": _Call("/jobs/schedule", {"job_id": "order-17", "status": "canceled"}),
    "putJob": _Call("/jobs/order-17", {"priority": "low"}),
    "patchJob": _Call("/jobs/order-17", {"priority": "low"}),
    "cancelJob": _Call("/jobs/order-17"),
    "holdJob": _Call("/jobs/order-17/hold"),
    "releaseJob": _Call("/jobs/order-17/release"),
    "retryJob": _Call("/jobs/order-17/retry"),
    "cloneJob": _Call("/jobs/order-17/clone"),
    "abortBulk": _Call("/bulk/operations/{bulk}"),
    "putDefinition": _Call("/definitions/monthly", {"task": "billing.charge", "kwargs": {"amount": 1}}),
    "deleteDefinition": _Call("/definitions/monthly"),
    "putSchedule": _Call("/schedules/hourly", _SCHEDULE),
    "changeSchedule": _Call("/schedules/hourly", {"overlap": "skip"}),
    "removeSchedule": _Call("/schedules/hourly"),
    "putReaction": _Call("/reactions/clean-up", {"task": "billing.charge", "when": _ENDS}, "picky-all"),
    "removeReaction": _Call("/reactions/clean-up", by="picky-all"),
    "pauseSchedule": _Call("/schedules/hourly/pause"),
    "resumeSchedule": _Call("/schedules/hourly/resume"),
    "runSchedule": _Call("/schedules/hourly/run"),
    "backfillSchedule": _Call("/schedules/hourly/backfill", _PAST),
    "putWorkflow": _Call("/workflows/nightly", {"text": _FILE}),
    "activateWorkflow": _Call("/workflows/nightly/activate", {"version": sha256(_CONTENT).hexdigest()}),
    "startWorkflow": _Call("/workflows/nightly/start"),
    "closeRun": _Call("/runs/{run}/close"),
    "cancelRun": _Call("/runs/{run}/cancel"),
    "redriveRun": _Call("/runs/{run}/redrive"),
    "holdRun": _Call("/runs/{run}/hold"),
    "releaseRun": _Call("/runs/{run}/release"),
    "cloneRun": _Call("/runs/{run}/clone"),
    "putAlertRule": _Call("/alerts/rules/late", {**_RULE, "task": "billing.*"}),
    "deleteAlertRule": _Call("/alerts/rules/late"),
    "resolveFailureGroup": _Call("/failures/groups/{group}/resolve", {}),
    "muteFailureGroup": _Call("/failures/groups/{group}/mute", {}),
    "reopenFailureGroup": _Call("/failures/groups/{group}/reopen", {}),
    "addSilence": _Call("/alerts/silences", {"rule": "l*", "seconds": 60}),
    "setUpAlertCompat": _Call("/alerts/setup", {**_RULE, "name": "late", "task": "billing.*"}),
    "setMember": _Call("/members/ann", _MEMBER, "picky-admin"),
    "removeMember": _Call("/members/ann", by="picky-admin"),
    "addUser": _Call("/users", {"name": "new", "memberships": _ROLES}, "picky-all"),
    "changeUser": _Call("/users/{user}", {"is_disabled": True}, "picky-all"),
    "eraseUser": _Call("/users/{user}", by="picky-all"),
    "setRole": _Call("/users/{user}/roles/acme", _MEMBER, "picky-all"),
    "removeRole": _Call("/users/{user}/roles/acme", by="picky-all"),
    "endUserSession": _Call("/users/{user}/sessions/{session}", by="picky-all"),
    "revokeUserToken": _Call("/users/{user}/tokens/{token}", by="picky-all"),
}
_NESTED_CALLS: Final = {
    "put": ("PUT", "/workflows/new", {"text": f"workflow: new\n{_NESTED_STEPS}"}),
    "try": ("PUT", "/workflows/new", {"text": f"workflow: new\n{_NESTED_STEPS}", "dry_run": True}),
    "replace": ("PUT", "/workflows/nightly", {"text": f"workflow: nightly\n{_HARMLESS}"}),
    "replace the outer one": ("PUT", "/workflows/outer", {"text": f"workflow: outer\n{_HARMLESS}"}),
    "activate": ("POST", "/workflows/outer/activate", {"version": sha256(_NESTED).hexdigest()}),
    "start": ("POST", "/workflows/outer/start", None),
    "clone": ("POST", "/runs/{nested}/clone", None),
    "redrive": ("POST", "/runs/{nested}/redrive", None),
    "pause": ("POST", "/schedules/timed/pause", None),
    "run": ("POST", "/schedules/timed/run", None),
    "backfill": ("POST", "/schedules/timed/backfill", _PAST),
    "remove": ("DELETE", "/schedules/timed", None),
}
"""Calls about workflows whose sub-workflow calls a task that the caller may not call."""
_LEFT: Final = {
    "actOnJobs": _Call("/bulk", {"action": "cancel", "everything": True}),
    "beginBulk": _Call("/bulk/operations", {"action": "cancel", "everything": True}),
    "replayDeadLetters": _Call("/dead-letters/work/replay", {}, "picky-all"),
    "purgeDeadLetters": _Call("/dead-letters/work/purge", {"name": "work"}, "picky-all"),
}
"""Calls about many things, which do nothing to those."""
_NO_TASK: Final = {
    # A read, a test notice to channels, and the end of a silence remove nothing.
    "explainRule", "testAlertRule", "deleteSilence",
    # A source has its task, and a sender without a signature the patterns of the caller: `test_outside_events`.
    "sendEvent",
    # A step waits for a signal of people who may not call the tasks behind it.
    "signalRun", "signalJob",
    # Objects of the instance that belong to no task.
    "addTenant", "removeTenant", "changeTenant", "pauseQueue", "resumeQueue", "purgeQueue", "moveMessages",
    "controlWorkers", "putPool", "removePool", "putQueuePolicy", "removeQueuePolicy", "putQuota", "removeQuota",
    "removeNode", "drainNode", "resumeNode", "registerNodeCompat", "updateNodeStatusCompat",
    "allocateResourcesCompat", "releaseResourcesCompat",
}  # fmt: skip


async def _populate(site: Site) -> dict[str, str]:
    """Create the objects without an HTTP call; return the ids."""
    identity, by = site.app.sessions.store().identity, Actor(user="tests")
    await identity.accounts.add_tenant(Tenant(name="acme"), by=by)
    ids = {name: str(uuid.uuid4()) for name in ("user", "session", "token")}
    roles = (Membership("acme", Role.SUBMITTER),)
    await identity.accounts.add_user(NewUser(id=ids["user"], name="ann", memberships=roles), by=by)
    session, token = session_key(b"s" * 32), token_key(b"t" * 32)
    await identity.credentials.add_session(
        NewBrowserSession(
            id=ids["session"], user_id=ids["user"], digest=session.digest, idle_ms=10**7, longest_ms=10**7
        ),
        by=by,
    )
    await identity.credentials.add_token(
        NewApiToken(id=ids["token"], user_id=ids["user"], name="ci", digest=token.digest), by=by
    )
    group = FailureKey("acme", "data_processing", "OSError")
    mark = FailureMark(key=group, state="muted", at=1)
    audit = by.entry("failures.mute", kind="failures", subject=group.id, tenant="acme")
    await history_of(site.app.sessions.store()).failures.put_mark(mark, audit=audit)
    ids["group"] = group.id
    ids["run"] = await _start_run(site)
    ids["nested"] = await _start_nested_run(site)
    app = site.app
    app.task(name="tidy", queue="work")(lambda ended: None)
    reactions = StoredReactions(app.name, app.tasks, app.reactions, app.sessions.store().schedules)
    await reactions.put("clean-up", ReactionRule(task="tidy", when=_ENDS))
    broker = site.app.sessions.current().broker
    await broker.declare([WorkQueue("work")])
    letter = Outgoing(
        queue="work.dlq",
        body=b'{"id": "m", "task": "data_processing", "attempt": 3}',
        content_type="application/json",
        job_id="m",
        task="data_processing",
        headers={"x-taskmq-reason": "error", "x-taskmq-error": "OSError: full", "x-taskmq-origin": "work"},
    )
    await broker.publish(letter, timeout=10)
    return ids


async def _start_run(site: Site) -> str:
    """Store a workflow and start a run; return its id."""
    runs = RunDriver(site.app.sessions.store())
    await runs.runs.put_workflow("acme", "nightly", _CONTENT)
    return await runs.start(tenant="acme", workflow="nightly")


async def _start_nested_run(site: Site) -> str:
    """Store workflows that run the other one, and start a run of the outer one; return its id."""
    runs = RunDriver(site.app.sessions.store())
    # A workflow that runs itself fails, and is checked once.
    middle = content_of({"b": {"workflow": "nightly"}, "c": {"workflow": "middle"}}, workflow="middle")
    await runs.runs.put_workflow("acme", "middle", middle)
    await runs.runs.put_workflow("acme", "outer", _NESTED)
    return await runs.start(tenant="acme", workflow="outer")


class _Filled(NamedTuple):
    site: Site
    ids: dict[str, str]

    def ask(self, operation: str, call: _Call) -> Any:
        method = self.methods[operation]
        return self.site(method, call.path.format(**self.ids), call.body, by=call.by)

    @property
    def methods(self) -> dict[str, str]:
        """Return the method of each call with a change that requires a role."""
        found: dict[str, str] = {}
        for methods in self.site("GET", "/api/openapi.json").json()["paths"].values():
            for method, operation in methods.items():
                if method == "get" or not operation["security"]:
                    continue
                permission = operation["description"].rpartition("Permission: `")[2].removesuffix("`.")
                if RULES[Permission(permission)].level in _LEVELS:
                    found[operation["operationId"]] = method.upper()
        return found

    def things(self) -> list[Any]:
        """Return the objects of all calls."""
        paths = (
            "/jobs/order-17", "/definitions/monthly", "/schedules/hourly", "/runs", "/members",
            "/alerts/rules", "/alerts/silences",
        )  # fmt: skip
        users = f"/users/{self.ids['user']}"
        of_instance = (users, f"{users}/sessions", f"{users}/tokens", "/dead-letters/work")
        return [
            *(self.site("GET", path).json() for path in paths),
            *(self.site("GET", path, by="all-admin").json() for path in of_instance),
        ]


_LEVELS: Final = {Level.TENANT, Level.INSTANCE, Level.ANYWHERE}


@pytest.fixture
def filled_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Filled]:
    # No scheduler runs.
    monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
    with open_site(tmp_path) as site:
        with site.client.portal() as portal:
            ids = portal.call(_populate, site)
        site.submit()
        for path, body in (
            ("/definitions/monthly", {"task": "data_processing"}),
            ("/schedules/hourly", {"task": "monthly", "every": 3600}),
            ("/alerts/rules/late", _RULE),
            ("/workflows/timed", {"text": f"schedule: {{cron: '@daily'}}\nworkflow: timed\n{_NESTED_STEPS}"}),
        ):
            assert site("PUT", path, body).status_code in {200, 201}
        bulk = {"action": "hold", "filter": "task:nothing", "rate": 0.01}
        ids["bulk"] = site("POST", "/bulk/operations", bulk).json()["bulk_id"]
        yield _Filled(site, ids)


def test_every_call_declares_its_effect_on_forbidden_tasks(filled_site: _Filled) -> None:
    assert filled_site.methods.keys() == _REFUSED.keys() | _LEFT.keys() | _NO_TASK


def test_no_object_of_a_forbidden_task_is_changed_or_deleted(filled_site: _Filled) -> None:
    before = filled_site.things()

    answers = {name: filled_site.ask(name, call) for name, call in _REFUSED.items()}

    refused = {name for name, answer in answers.items() if answer.json().get("code") == "not_allowed"}
    assert refused == _REFUSED.keys(), {name: answers[name].text for name in _REFUSED.keys() - refused}
    assert filled_site.things() == before
    assert filled_site.site("GET", f"/bulk/operations/{filled_site.ids['bulk']}").json()["state"] != "aborted"


def test_sub_workflows_call_no_forbidden_task(filled_site: _Filled) -> None:
    site, by = filled_site.site, "picky"

    answers = {
        name: site(method, path.format(**filled_site.ids), body, by=by)
        for name, (method, path, body) in _NESTED_CALLS.items()
    }

    refused = {name for name, answer in answers.items() if answer.json().get("code") == "not_allowed"}
    assert refused == _NESTED_CALLS.keys(), {name: answers[name].text for name in _NESTED_CALLS.keys() - refused}
    assert answers["start"].json()["detail"] == ("step a.b.a: you are not permitted to call task 'data_processing'")
    for name, (method, path, body) in _NESTED_CALLS.items():
        allowed = site(method, path.format(**filled_site.ids), body, by="acme-admin")
        assert allowed.json().get("code") != "not_allowed", (name, allowed.text)


def test_bulk_calls_skip_objects_of_forbidden_tasks(filled_site: _Filled) -> None:
    before = filled_site.things()

    answers = {name: filled_site.ask(name, call) for name, call in _LEFT.items()}

    assert {answer.status_code for answer in answers.values()} == {200, 202}
    bulk = f"/bulk/operations/{answers['beginBulk'].json()['bulk_id']}"
    eventually(lambda: filled_site.site("GET", bulk).json()["state"] == "done", "the bulk operation is done")
    assert filled_site.site("GET", bulk).json()["refused"] == 1
    assert filled_site.things() == before


def test_a_caller_with_permission_for_the_task_succeeds(filled_site: _Filled) -> None:
    order = sorted(_REFUSED, key=lambda name: name.startswith(("cancel", "remove", "delete", "erase", "schedule")))

    for name in order:
        call = _REFUSED[name]
        by = "all-admin" if call.by == "picky-all" else "acme-admin"
        answer = filled_site.ask(name, call._replace(by=by))
        assert answer.json().get("code") != "not_allowed", (name, answer.text)
