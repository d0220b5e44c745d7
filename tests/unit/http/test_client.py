"""The client against a real server: every call, errors, pages, tenants."""

import asyncio
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec import Raw

from taskmq import TaskMQ
from taskmq.api._generated.operations import OPERATIONS
from taskmq.api.accounts import NewRole
from taskmq.api.dead_letters import ReplayBody
from taskmq.api.definitions import DefinitionBody
from taskmq.api.history.alerts import RuleBody
from taskmq.api.job_requests import JobSignalBody, SubmitBody
from taskmq.api.jobs import JobDetails, RefusedJob, ResultProblem, SubmittedJob
from taskmq.api.nodes import AllocateBody, RegisterBody
from taskmq.api.pools import PolicyBody, PoolBody, QuotaBody
from taskmq.api.schedules import ChangeScheduleBody, PutReactionBody, PutScheduleBody, ScheduleRule
from taskmq.api.workers import ControlBody
from taskmq.api.workflows.definitions import StartRunBody, WorkflowBody
from taskmq.api.workflows.runs import CloneRunBody, SignalBody
from taskmq.contracts.history import history_of
from taskmq.contracts.identity import AuditFilter
from taskmq.errors import (
    DefinitionConflict,
    DefinitionNotFound,
    IdentityConflict,
    IdentityNotFound,
    InvalidArguments,
    InvalidFilter,
    InvalidOption,
    InvalidSetting,
    InvalidWorkflow,
    JobCancelled,
    JobConflict,
    JobNotFound,
    NotAuthenticated,
    NotPermitted,
    QueueMissing,
    ReactionNotFound,
    RequestRefused,
    ResultDamaged,
    ResultExpired,
    ResultTimeout,
    RunClosed,
    RunNotFound,
    ScheduleNotFound,
    TaskMQError,
    UnknownTask,
    UnsupportedFeature,
)
from taskmq.http import AsyncClient, Client
from taskmq.http._generated.jobs import JobCalls
from taskmq.http.aio.jobs import AsyncJobCalls
from taskmq.http.bodies import result_of
from taskmq.model.envelope import JSON, BlobReference
from taskmq.model.history.rollups import RunFailure
from taskmq.model.identity import AuditEntry, Role, Scope
from taskmq.model.values.light_values import REFERENCE, reference_to
from taskmq.server import build
from taskmq.server.examples import EXAMPLES
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.unit.app_kit import new_url
from tests.unit.http.conftest import NO_WAIT, PASSWORD, Served, serve
from tests.unit.server.kit import define

LATER = datetime(2099, 1, 31, 9, tzinfo=UTC)

# API calls without a method of the client, and the reason.
_WITHOUT_METHOD = {
    "logInCompat": "another path of logIn",
    "logOutCompat": "another path of logOut",
    "authorizeCompat": "another path of authorize",
    "createJobCompat": "jobs.submit with held=True",
    "scheduleJobCompat": "jobs.change and jobs.release",
    "getJobStatusCompat": "jobs.get",
    "beginOidcLogin": "for browsers",
    "endOidcLogin": "for browsers",
    "listNodesCompat": "nodes.list",
    "downloadJobLogs": "logs.of_job, page by page",
    "queryLogsCompat": "logs.search",
    "getMetricsCompat": "figures.over_time",
    "setUpAlertCompat": "alerts.put_rule",
    "putJob": "the same as patchJob",
}


# Calls other than GET that leave no entry in the audit here, and the reason.
_WITHOUT_ENTRY = {
    "authorize": "it reads",
    "explainRule": "it reads",
    "backfillSchedule": "it only plans here",
    "abortBulk": "the operation has ended before, so nothing changes",
    "submitJobs": "the job itself names its submitter",
    "updateNodeStatusCompat": "it reports that a node is alive",
}


# Calls about objects that do not exist here: tests/cli/test_audited_commands.py and the tests of accounts make them.
_UNSUCCESSFUL = {
    "cancelRun",
    "closeRun",
    "redriveRun",
    "signalRun",
    "sendEvent",
    "endSession",
    "endUserSession",
    "revokeUserToken",
}


@pytest.mark.parametrize("calls", [JobCalls, AsyncJobCalls])
def test_a_submission_accepts_every_field_of_its_body(calls: type[JobCalls | AsyncJobCalls]) -> None:
    # These are given as the task and its arguments, or by another name.
    other = {"job_type", "task", "payload", "kwargs", "args", "schedule_time", "expires_at", "expires_in"}
    options = {
        name
        for name, parameter in inspect.signature(calls.submit).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }

    assert options == {*SubmitBody.__struct_fields__} - other | {"at", "expires"}


def test_every_api_call_has_a_method_or_a_reason_for_having_none(site: Served) -> None:
    described = {
        operation["operationId"]: (method.upper(), path)
        for path, operations in site.client.openapi()["paths"].items()
        for method, operation in operations.items()
    }
    known = {name: (operation.method, operation.path) for name, operation in OPERATIONS.items()}

    assert known == {name: where for name, where in described.items() if name not in _WITHOUT_METHOD}
    assert set(_WITHOUT_METHOD) <= set(described)


@pytest.fixture(scope="module")
def used_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """Yield a server of which every call was made once, and the folder of its store."""
    folder = tmp_path_factory.mktemp("used")
    with serve(folder) as served:
        _use_everything(served)
        yield served, folder


def test_every_method_makes_its_call_and_reads_the_answer(used_site: tuple[Served, Path]) -> None:
    served, _ = used_site

    # A stream does not end here: tests/e2e/test_server.py follows one.
    assert served.asked == set(OPERATIONS) - {"followEvents"}


def test_each_change_over_http_is_audited_with_its_user(used_site: tuple[Served, Path]) -> None:
    served, folder = used_site

    async def read() -> dict[str, AuditEntry]:
        async with TaskMQ(new_url(), store=f"sqlite:///{folder}/jobs.db") as app:
            page = await app.sessions.store().identity.audit.entries(Scope(None), AuditFilter(), limit=1_000)
            return {entry.request_id: entry for entry in (record.entry() for record in page.entries)}

    entries = asyncio.run(read())
    found = {name: entries.get(request_id) for name, request_id in served.changes}

    assert {name for name, entry in found.items() if entry is None} == set(_WITHOUT_ENTRY)
    named = {name: entry for name, entry in found.items() if entry is not None}
    assert {entry.user for entry in named.values()} == {"root"}
    # A change of many jobs names its filter instead of a subject.
    assert {name for name, entry in named.items() if not (entry.action and entry.subject)} == {"actOnJobs"}
    assert {name for name, operation in OPERATIONS.items() if operation.method != "GET"} == {*found} | _UNSUCCESSFUL


def _use_everything(site: Served) -> None:
    client = site.client
    _use_jobs(client)
    _use_definitions_and_tasks(client)
    _use_the_installation(client)
    _use_history(client)
    _use_failure_groups(site)
    _use_nodes(client)
    _use_turns(client)
    _use_accounts(site)
    with pytest.raises(RequestRefused, match="event source 'nowhere' not found"):
        client.send_event("nowhere", {"order": 17})
    assert client.is_live()
    assert client.is_ready()
    assert [each.part for each in client.health().parts] == ["store", "broker", "state", "schedulers", "workers"]
    assert {each.holder for each in client.system_health().partitions} == {None}
    assert client.openapi()["openapi"].startswith("3.1")


def _use_failure_groups(served: Served) -> None:
    async def fail() -> None:
        store = served.app.sessions.store()
        failed = RunFailure(
            at=await store.now_ms(), job="lost", event="dead", task="report", queue="q", error="OSError"
        )
        await history_of(store).rollups.add([], [failed])

    with served.http.portal() as portal:
        portal.call(fail)
    groups = served.client.failure_groups
    (group,) = groups.list().items
    groups.mute(group.id, seconds=60, note="known")
    assert [one.note for one in groups.list(state="muted").items] == ["known"]
    groups.resolve(group.id, note="fixed")
    assert [one.note for one in groups.list(state="resolved").items] == ["fixed"]
    groups.reopen(group.id)
    assert [one.id for one in groups.list(state="open").items] == [group.id]
    with pytest.raises(RequestRefused, match="not found"):
        groups.resolve("absent")


def _succeed_with_large_value(served: Served) -> str:
    """Create a job whose result is in a file store that the server cannot reach; return its id."""

    async def succeed() -> str:
        driver = JobDriver(served.app.sessions.store())
        blob = BlobReference(name="job-1/0", size=4, sha256="0" * 64)
        job = await driver.dispatch_new()
        await driver.expect_accepted(job, "succeeded", content_type=REFERENCE, result=Raw(reference_to(JSON, blob)))
        return job.id

    with served.http.portal() as portal:
        return portal.call(succeed)


def test_an_unreachable_result_is_an_error_and_its_job_is_not(site: Served) -> None:
    job = _succeed_with_large_value(site)

    found = site.client.jobs.get(job, expand=["result"])

    assert (found.state, found.result) == ("succeeded", None)
    assert found.result_problem is not None
    assert found.result_problem.code == "unsupported"
    with pytest.raises(UnsupportedFeature, match="results_at="):
        site.client.jobs.result(job)


@pytest.mark.parametrize(("code", "kind"), [("result_expired", ResultExpired), ("result_damaged", ResultDamaged)])
def test_an_expired_result_raises_the_same_error_as_in_python(code: str, kind: type[TaskMQError]) -> None:
    problem = ResultProblem(code=code, detail="it is gone")
    shown = msgspec.convert({**EXAMPLES["getJob"].answers[200], "state": "succeeded"}, JobDetails)

    with pytest.raises(kind, match="it is gone"):
        result_of(msgspec.structs.replace(shown, result_problem=problem))


def _use_jobs(client: Client) -> None:
    made = client.jobs.submit("data_processing", "a", at=LATER, job_id="one", labels={"team": "web"}, number=2)
    assert (made.status, made.job_id, made.is_new, made.state) == ("submitted", "one", True, "scheduled")
    assert not client.jobs.submit(
        "data_processing", "a", at=LATER, job_id="one", labels={"team": "web"}, number=2
    ).is_new
    found = client.jobs.get("one", expand=["payload", "logs"])
    assert (found.job_id, found.args, found.payload, found.labels) == ("one", ["a"], {"number": 2}, {"team": "web"})
    assert found.logs is not None
    assert [line.log_message for line in found.logs] == ["submitted"]
    changed = client.jobs.change("one", version=1, priority="low", kwargs={"number": 3}, note="later")
    assert (changed.status, changed.version) == ("updated", 2)
    assert client.jobs.hold("one", note="wait").state == "held"
    assert client.jobs.release("one", version=3).state == "scheduled"
    sent = client.jobs.signal("one", JobSignalBody(signal="approval", value={"ok": True}, signal_id="a-1"))
    assert (sent.job_id, sent.signal, sent.signal_id) == ("one", "approval", "a-1")
    assert client.jobs.explain("one").reasons[0].startswith("it waits for its time")
    assert client.jobs.cancel("one", note="enough").status == "cancelled"
    assert [entry.kind for entry in client.jobs.history("one")][-1] == "cancel"
    assert client.jobs.attempts("one") == []
    assert client.jobs.wait("one").state == "cancelled"
    with pytest.raises(JobCancelled, match="enough"):
        client.jobs.result("one")
    again = client.jobs.retry("one", new_id="again")
    assert (again.status, again.job_id) == ("retried", "again")
    copied = client.jobs.clone("one", new_id="copy", at=LATER, args=["b"], kwargs={"number": 4}, priority="high")
    assert (copied.status, copied.job_id, copied.state) == ("cloned", "copy", "scheduled")
    copy = client.jobs.get("copy", expand=["payload"])
    assert (copy.args, copy.payload, copy.priority, copy.retry_of) == (["b"], {"number": 4}, 8, found.id)
    assert client.jobs.get("one").retried_as == again.id
    with pytest.raises(JobConflict, match="retried as job again"):
        client.jobs.retry("one")
    assert client.jobs.retry("one", new_id="thrice", again=True).job_id == "thrice"
    assert client.jobs.cancel("thrice").status == "cancelled"
    assert client.jobs.count("status:cancelled").count == 1
    bars = client.jobs.histogram("status:cancelled retried:any", bars=4).items
    assert (len(bars), [bar.counts for bar in bars if bar.counts]) == (4, [{"cancelled": 2}])
    counts = client.jobs.counts(["status:cancelled retried:any", "task:none"], max_age=1)
    assert [(one.filter, one.count) for one in counts] == [("status:cancelled retried:any", 2), ("task:none", 0)]
    assert client.jobs.get("one", expand=["progress"]).progress is None
    assert [job.progress for job in client.jobs.page(expand=["progress"]).items] == [None] * 4
    assert {job.job_id for job in client.jobs.list(page_size=2)} == {"one", "again", "copy", "thrice"}
    assert client.jobs.act("cancel", "status:scheduled", dry_run=True).matched == 1
    assert client.jobs.act("cancel", "status:scheduled", note="all").done == 1
    begun = client.bulks.begin("hold", "task:none", rate=5.0, note="inventory")
    assert client.bulks.wait(begun.bulk_id, every=0.01).state == "done"
    assert client.bulks.abort(begun.bulk_id).state == "done"
    assert [(one.bulk_id, one.rate) for one in client.bulks.list(page_size=1)] == [(begun.bulk_id, 5.0)]


def _use_definitions_and_tasks(client: Client) -> None:
    first = client.definitions.put(
        "nightly-key", DefinitionBody(task="data_processing", kwargs={"key": "k"}, expires_in="1h")
    )
    other = DefinitionBody(task="data_processing", kwargs={"key": "l"})
    assert (first.version, first.kwargs, first.expires_in) == (1, {"key": "k"}, 3600)
    assert client.definitions.put("nightly-key", other, version=1).version == 2
    assert client.definitions.get("nightly-key", version=1).kwargs == {"key": "k"}
    assert [one.version for one in client.definitions.versions("nightly-key")] == [2, 1]
    assert [one.name for one in client.definitions.list()] == ["nightly-key"]
    client.definitions.delete("nightly-key", version=2)
    assert [one.name for one in client.tasks.list(page_size=2)] == [
        "billing.charge",
        "data_processing",
        "report",
        "tidy",
    ]
    assert client.tasks.get("data_processing").arguments["properties"]["number"]["type"] == "integer"
    assert client.workers.list(within=0.01) == []
    told = client.workers.control(ControlBody(command="drain", workers=["web-1"]), within=0.01)
    assert (told.items, told.missing) == ([], ["web-1"])


def _use_the_installation(client: Client) -> None:
    assert {line.queue: line.ready for line in client.queues.list(within=0.01).items}["work"] == 2
    assert client.queues.get("work", within=0.01).dead == 2
    assert client.queues.demand("work").queue == "work"
    assert client.queues.pause("work", note="inventory").note == "inventory"
    assert client.queues.resume("work")
    assert client.queues.move("work", "billing", count=1, task="data_*").moved == 1
    assert client.queues.purge("work") == 1
    assert client.dead_letters.queues() == ["work"]
    assert [letter.job_id for letter in client.dead_letters.list("work")] == ["d1", "d2"]
    assert [group.count for group in client.dead_letters.groups("work")] == [2]
    assert client.dead_letters.replay("work", ReplayBody(job="d1")).replayed == 1
    assert client.dead_letters.purge("work", job="d2") == 1
    assert [line.name for line in client.reactions.list(page_size=1)] == ["bill", "tidy"]
    assert client.reactions.get("tidy").rule == "when a job of billing.charge has succeeded"
    ends = {"kind": "job", "tasks": ["data_processing"], "states": ["failed"]}
    assert client.reactions.put("clean-up", PutReactionBody(task="tidy", when=ends)).is_dynamic
    client.reactions.remove("clean-up")
    assert [line.name for line in client.schedules.list()] == ["nightly"]
    assert client.schedules.pause("nightly", note="holidays").note == "holidays"
    assert client.schedules.resume("nightly").paused is None
    assert client.schedules.get("nightly").starts == "report"
    assert client.schedules.next("nightly", count=1, after=LATER) == ["2099-02-01T02:00:00.000Z"]
    assert client.schedules.explain("nightly", count=1).means == "at 02:00 every day, UTC"
    assert client.schedules.explain_rule(ScheduleRule(every="1h"), count=2).means == "every hour"
    assert client.schedules.run("nightly")
    assert client.schedules.put("hourly", PutScheduleBody(task="report", every="1h")).is_dynamic
    assert client.schedules.add("hourly", PutScheduleBody(task="report", every="1h")).rule == "every hour"
    assert client.schedules.change("hourly", ChangeScheduleBody(every="2h")).rule == "every 2 hours"
    assert client.schedules.put("hourly", PutScheduleBody(task="report", every="1h")).rule == "every hour"
    with pytest.raises(InvalidOption, match="exists already"):
        client.schedules.add("hourly", PutScheduleBody(task="report", every="2h"))
    client.schedules.remove("hourly")
    past = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(client.schedules.backfill("nightly", past, past + timedelta(days=2), dry_run=True).instants) == 2
    _use_workflows(client)


def _use_workflows(client: Client) -> None:
    text = "steps: {a: {task: data_processing}, b: {wait: approval}}"
    made = client.workflows.put("weekly", WorkflowBody(text=text))
    assert made.is_new
    with pytest.raises(InvalidWorkflow, match="line 1, step a, rule: 'no' is not a rule"):
        client.workflows.put("weekly", WorkflowBody(text="steps: {a: {task: report, rule: no}}"))
    assert client.workflows.get("weekly", version=made.version).content["steps"]["b"] == {"wait": "approval"}
    assert [one.version for one in client.workflows.versions("weekly")] == [made.version]
    assert client.workflows.activate("weekly", made.version).is_current
    assert [one.name for one in client.workflows.list()] == ["weekly"]
    started = client.workflows.start("weekly", StartRunBody(labels={"team": "ops"}))
    assert client.runs.get(started.run_id).labels == {"team": "ops"}
    assert [run.run_id for run in client.runs.list("workflow:week*")] == [started.run_id]
    (line,) = client.runs.page("workflow:weekly", expand=["steps"]).items
    assert [(mark.step, mark.state) for mark in line.marks or []] == [("a", "waiting"), ("b", "waiting")]
    assert client.runs.page().items[0].marks is None
    assert [step.step for step in client.runs.steps(started.run_id, limit=1).items] == ["a"]
    assert client.runs.children(started.run_id, "a").items == []
    assert [step.kind for step in client.runs.graph(started.run_id).steps] == ["task", "wait"]
    assert [row.step for row in client.runs.timeline(started.run_id, limit=1).items] == ["a"]
    client.runs.hold(started.run_id, reason="disk full")
    client.runs.release(started.run_id)
    cloned = client.runs.clone(started.run_id, CloneRunBody())
    assert (client.runs.get(cloned.run_id).workflow, cloned.is_new) == ("weekly", True)
    with pytest.raises(RequestRefused, match="the run has not ended"):
        client.runs.redrive(started.run_id, dry_run=True)
    assert client.runs.logs(started.run_id, step="a").items == []
    assert client.logs.search(run_id=started.run_id, step="a").items == []
    with pytest.raises(RequestRefused, match="no step waits for signal 'aproval': did you mean 'approval'"):
        client.runs.signal(started.run_id, SignalBody(signal="aproval"))
    with pytest.raises(RunClosed):
        client.runs.close(started.run_id)
    for ask in (client.runs.get, client.runs.close, client.runs.cancel, client.runs.redrive):
        with pytest.raises(RunNotFound):
            ask("none")


def _use_turns(client: Client) -> None:
    assert client.pools.put("acme", PoolBody(weight=2)).weight == 2
    assert client.pools.get("acme").parent is None
    assert client.pools.put_policy("work", PolicyBody(policy="fair")).policy == "fair"
    assert [one.queue for one in client.pools.list().policies] == ["work"]
    client.pools.remove_policy("work")
    client.pools.remove("acme")
    assert [one.tenant for one in client.pools.waiting(limit=1)] == [""]
    assert client.pools.list().items == []
    assert client.quotas.put("acme", QuotaBody(a_day=100), user="ann").a_day == 100
    assert [(one.tenant, one.user) for one in client.quotas.list()] == [("acme", "ann")]
    client.quotas.remove("acme", user="ann")


def _use_nodes(client: Client) -> None:
    node = client.nodes.register(RegisterBody(name="n1", capacity={"cpu": 4}))
    assert client.nodes.update_status(node.node_id, "available").name == "n1"
    assert [one.name for one in client.nodes.list()] == ["n1"]
    taken = client.resources.allocate(AllocateBody(job_id="mine", cpu=1))
    assert client.nodes.get("n1").used == {"cpu": 1.0}
    assert [one.allocation_id for one in client.resources.usage(is_open=True).items] == [taken.allocation_id]
    assert client.resources.release(taken.allocation_id).status == "released"
    assert client.nodes.drain("n1").status == "draining"
    assert client.nodes.resume("n1").status == "available"
    assert client.nodes.remove("n1").name == "n1"


def _use_history(client: Client) -> None:
    assert client.logs.of_job("one").items == []
    assert client.logs.search("nothing", since=LATER).next is None
    assert client.figures.rollups(until=LATER).items == []
    assert client.figures.usage(until=LATER, by=("tenant",)) == []
    over_time = client.figures.over_time("ended", step=600)
    assert (over_time.step, over_time.versions, len(over_time.items)) == (600, [], 1)
    assert client.figures.failures(task="report", traceback=True).items == []
    rule = RuleBody(metric="depth", threshold=100, channels=["https://example.com/hook"])
    assert client.alerts.put_rule("deep", rule).version == 1
    assert client.alerts.test_rule("deep") == ["https://example.com/hook"]
    assert [one.name for one in client.alerts.rules()] == ["deep"]
    assert "depth" in client.alerts.metrics()
    assert client.alerts.list("firing").items == []
    silence = client.alerts.silence(60, rule="deep", note="known")
    assert [one.id for one in client.alerts.silences()] == [silence.id]
    client.alerts.end_silence(silence.id)
    client.alerts.delete_rule("deep")
    assert [one.rule for one in client.alerts.notices()] == ["deep"]


def _use_accounts(site: Served) -> None:
    client = site.by("")
    assert client.account.login("root", PASSWORD).user == "root"
    assert client.account.me().via == "session"
    assert client.server().app == "taskmq"
    tenant = client.tenants.add("acme", description="first")
    assert client.tenants.change("acme", description="a customer").created == tenant.created
    assert [one.description for one in client.tenants.list()] == ["a customer"]
    user = client.users.add("ann", PASSWORD, memberships=[NewRole(tenant="acme", role=Role.VIEWER)])
    client.users.set_role(user.id, "acme", Role.OPERATOR, tasks=["billing.*"])
    assert [(one.user, one.role) for one in client.tenants.members() if one.tenant == "acme"] == [("ann", "operator")]
    assert client.users.change(user.id, email="ann@example.com").email == "ann@example.com"
    client.for_tenant("acme").tenants.set_member("ann", Role.VIEWER)
    client.for_tenant("acme").tenants.remove_member("ann")
    client.users.set_role(user.id, "acme", Role.OPERATOR, tasks=["billing.*"])
    assert client.users.get(user.id).memberships is not None
    assert [one.name for one in client.users.list(page_size=1)] == ["ann", "root"]
    client.users.remove_role(user.id, "acme")
    assert (client.users.sessions(user.id), client.users.tokens(user.id)) == ([], [])
    for end in (client.users.end_session, client.users.revoke_token):
        with pytest.raises(IdentityNotFound):
            end(user.id, "none")
    with pytest.raises(IdentityNotFound):
        client.sessions.end("none")
    assert {one.is_own for one in client.sessions.list()} <= {True, False}
    client.users.erase(user.id)
    client.tenants.remove("acme")
    token = client.tokens.add("script", scopes=["jobs.read"], expires_at=LATER)
    assert client.account.authorize(token.secret, "jobs.read")
    assert not client.account.authorize(token.secret, "jobs.submit")
    assert {one.name for one in client.tokens.list()} == {"script", "test"}
    client.tokens.revoke(token.id)
    assert (client.audit.verify().is_whole, client.audit.chain(limit=1).items) == (True, [])
    actions = [entry.action for entry in client.audit.list(action="user.", page_size=2)]
    assert {"user.add", "user.erase"} <= set(actions)
    client.account.change_password(PASSWORD, "another horse battery")
    client.account.logout()
    with pytest.raises(NotAuthenticated):
        client.account.me()


def test_job_lists_span_all_pages(site: Served) -> None:
    ids = [site.client.jobs.submit("report", at=LATER).id for _ in range(7)]

    listed = [job.id for job in site.client.jobs.list("status:scheduled", page_size=3)]

    assert sorted(listed) == sorted(ids)
    page = site.client.jobs.page(limit=5)
    assert (len(page.items), page.next is not None) == (5, True)


def test_each_job_of_a_batch_is_accepted_or_refused_separately(site: Served) -> None:
    bodies = [SubmitBody(task="report"), SubmitBody(task="nowhere"), SubmitBody(task="report", job_id="mine")]

    first, second, third = site.client.jobs.submit_many(bodies)

    assert isinstance(first, SubmittedJob)
    assert isinstance(second, RefusedJob)
    assert second.problem.code == "unknown_task"
    assert isinstance(third, SubmittedJob)
    assert third.job_id == "mine"


def test_waiting_for_a_job_ends_at_the_timeout(site: Served) -> None:
    site.client.jobs.submit("report", at=LATER, job_id="late")

    with pytest.raises(ResultTimeout, match="late has not ended within 0 s"):
        site.client.jobs.wait("late", timeout=0)


_ERRORS: list[tuple[type[Exception], Any]] = [
    (JobNotFound, lambda client: client.jobs.get("none")),
    (UnknownTask, lambda client: client.jobs.submit("data_procesing")),
    (UnknownTask, lambda client: client.tasks.get("none")),
    (InvalidArguments, lambda client: client.jobs.submit("data_processing", wrong=1)),
    (InvalidFilter, lambda client: client.jobs.count("stats:failed")),
    (InvalidOption, lambda client: client.jobs.submit("report", priority=12)),
    (InvalidOption, lambda client: client.jobs.submit("report", delay="soon")),
    (InvalidOption, lambda client: client.jobs.submit("data_processing", object())),
    (InvalidOption, lambda client: client.jobs.submit("data_processing", float("nan"))),
    (InvalidOption, lambda client: client.jobs.submit("data_processing", key={"deep": [float("inf")]})),
    (InvalidOption, lambda client: client.jobs.submit("data_processing", key={1: "no text"})),
    (InvalidOption, lambda client: client.jobs.get("")),
    (DefinitionNotFound, lambda client: client.definitions.get("none")),
    (QueueMissing, lambda client: client.queues.get("none", within=0.01)),
    (IdentityNotFound, lambda client: client.users.get("none")),
    (ScheduleNotFound, lambda client: client.schedules.get("none")),
    (ReactionNotFound, lambda client: client.reactions.get("none")),
    (NotAuthenticated, lambda client: client.account.login("root", "wrong")),
    (NotPermitted, lambda client: client.tokens.add("by a token")),
    (NotPermitted, lambda client: client.account.logout()),
]


@pytest.mark.parametrize(
    ("kind", "ask"), _ERRORS, ids=[f"{number}-{kind.__name__}" for number, (kind, _) in enumerate(_ERRORS)]
)
def test_a_refusal_raises_the_same_error_as_in_python(site: Served, kind: type[Exception], ask: Any) -> None:
    with pytest.raises(kind) as found:
        ask(site.client)

    assert type(found.value) is kind
    assert str(found.value)


def test_a_conflict_reports_state_and_version_of_the_job(site: Served) -> None:
    site.client.jobs.submit("report", at=LATER, job_id="one")

    with pytest.raises(JobConflict) as other_version:
        site.client.jobs.hold("one", version=9)
    with pytest.raises(JobConflict) as other_content:
        site.client.jobs.submit("report", at=LATER, job_id="one", priority=9)

    site.client.definitions.put("template", DefinitionBody(task="report"))
    with pytest.raises(DefinitionConflict) as definition:
        site.client.definitions.put("template", DefinitionBody(task="billing.charge"), version=7)

    with pytest.raises(JobConflict) as rule:
        site.client.alerts.put_rule("too-many", RuleBody(metric="failure_rate", threshold=0.5), version=3)

    user = site.client.users.add("late")
    with pytest.raises(IdentityConflict) as stale:
        site.client.users.change(user.id, email="late@example.org", version=user.version + 1)

    assert (definition.value.version, rule.value.version, stale.value.version) == (1, 0, user.version)
    assert (other_version.value.state, other_version.value.version) == ("scheduled", 1)
    assert "request " in other_version.value.__notes__[0]
    assert other_content.value.version == 1


def test_an_invalid_field_is_reported_with_the_valid_ones(site: Served) -> None:
    with pytest.raises(InvalidOption, match="priority: "):
        site.client.jobs.submit("report", priority=12)
    with pytest.raises(InvalidFilter) as found:
        site.client.jobs.count("status:failed stats:failed")

    assert found.value.column == 15


def test_a_client_for_a_tenant_requests_only_its_objects(site: Served) -> None:
    acme = site.client.for_tenant("acme")
    acme.jobs.submit("report", at=LATER, job_id="same")
    site.client.for_tenant("other").jobs.submit("report", at=LATER, job_id="same", priority=9)

    assert acme.jobs.get("same").tenant == "acme"
    assert [job.tenant for job in site.client.for_tenant("other").jobs.list()] == ["other"]
    assert [job.tenant for job in site.client.jobs.list()] == ["other", "acme"]
    assert repr(acme) == f"<Client of {site.url}>"


@pytest.mark.parametrize(
    "url", ["", "localhost:8787", "ftp://host", "http://", "http://ann:secret@host", "http://h?x=1"]
)
def test_a_url_that_is_not_http_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKMQ_SERVER", raising=False)

    with pytest.raises(InvalidSetting, match=r"(?i)server"):
        Client(url)


def test_certificates_are_read_only_for_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))

    with Client("http://jobs.example.com") as client:
        assert repr(client) == "<Client of http://jobs.example.com>"
    for url in ("https://jobs.example.com", "HTTPS://jobs.example.com"):
        with pytest.raises(FileNotFoundError):
            Client(url)


def test_server_and_token_come_from_the_environment(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_SERVER", f"{site.url}/")
    monkeypatch.setenv("TASKMQ_TOKEN", site.token)

    with Client(http=site.http, insecure=True) as client:
        assert client.jobs.count().count == 0
    monkeypatch.setenv("TASKMQ_TOKEN", "two words")
    with pytest.raises(InvalidSetting, match="the token contains invalid characters"):
        Client()


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_token_is_sent_to_another_machine_only_over_tls(
    client: type[Client] | type[AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TASKMQ_INSECURE", raising=False)
    with pytest.raises(InvalidSetting, match="has no TLS, so others could read the token") as refused:
        client("http://jobs.example.com", token="tmq_secret")
    assert "insecure=True" in str(refused.value)
    assert "tmq_secret" not in str(refused.value)
    monkeypatch.setenv("TASKMQ_TOKEN", "tmq_secret")
    with pytest.raises(InvalidSetting, match="has no TLS"):
        client("http://192.0.2.1:8787")

    client("http://jobs.example.com", insecure=True)
    client("http://jobs.example.com", token="")
    for own in ("127.0.0.1:8787", "[::1]:8787", "localhost", "jobs.localhost"):
        client(f"http://{own}")
    monkeypatch.setenv("TASKMQ_INSECURE", "1")
    client("http://jobs.example.com")
    with pytest.raises(InvalidSetting, match="has no TLS"):
        client("http://jobs.example.com", insecure=False)


def test_a_password_is_sent_to_another_machine_only_over_tls(site: Served) -> None:
    with Client(site.url, token="", http=site.http, retries=NO_WAIT) as client:
        with pytest.raises(InvalidSetting, match="others could read the password"):
            client.account.login("root", PASSWORD)
        assert site.asked == set()
    with Client(site.url, token="", http=site.http, retries=NO_WAIT, insecure=True) as client:
        assert client.account.login("root", PASSWORD).user == "root"


async def _use_coroutines(client: AsyncClient) -> list[str]:
    async with client:
        made = await client.jobs.submit("data_processing", "a", at=LATER, job_id="one")
        assert made.is_new
        await client.jobs.submit_many([SubmitBody(task="report", schedule_time=LATER) for _ in range(3)])
        with pytest.raises(JobNotFound):
            await client.for_tenant("acme").jobs.get("one")
        await client.jobs.cancel("one")
        assert (await client.jobs.wait("one")).state == "cancelled"
        return [job.task async for job in client.jobs.list(page_size=2)]


def test_the_async_client_behaves_the_same(tmp_path: Any) -> None:
    import asyncio

    app = TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db")
    define(app)

    async def run() -> list[str]:
        from tests.unit.server.kit import CALLERS

        async def identify(connection: Any) -> Any:
            return CALLERS["all-admin"]

        async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app=build(app, identify=identify))) as http:  # type: ignore[arg-type]
            return await _use_coroutines(AsyncClient("http://localhost", token="x", http=http, retries=NO_WAIT))

    assert asyncio.run(run()) == ["report", "report", "report", "data_processing"]
