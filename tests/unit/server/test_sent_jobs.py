"""Recorded sent jobs over HTTP: lists, pages and actions, with the state of the app and without."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import history_of
from taskmq.contracts.stores import WaitingMessage, require_store
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import JobConflict, JobNotFound, UnsupportedFeature
from taskmq.model.envelope import new_job_id
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.history.sent_runs import RecordedRun, RunReport, SentJobFacts
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import new_id
from taskmq_sql import open_job_store
from tests.unit.app_kit import new_url
from tests.unit.server.kit import DOCUMENT, Site

_AT = 1_800_000_000_000


def _report(name: str = "", *, state: JobState = JobState.SUCCEEDED, tenant: str = "acme", **run: Any) -> RunReport:
    facts = SentJobFacts(
        name=name or new_job_id(_AT, uuid4().bytes), task="mail", queue="mails", tenant=tenant, sent=_AT
    )
    ended = None if state is JobState.RUNNING else _AT + 900
    given: dict[str, Any] = {"worker": "w", "started": _AT + 400, "ended": ended, "state": state, **run}
    return RunReport(facts, RecordedRun(**given))


def _new_id() -> str:
    """Return an id of the present instant, as that of a job that is sent now."""
    return new_id(SystemClock().now_ms())


def _keep(site: Site, *reports: RunReport, lines: bool = False) -> None:
    async def add() -> None:
        store = open_job_store(site.app.sessions.store_url or "", BrokerOptions(name="test"))
        try:
            await history_of(store).sent_jobs.add(reports)
            if lines:
                logs = [
                    RunLog(
                        id=one.job.name,
                        token=one.run.started,
                        attempt=one.run.attempt,
                        lines=[RunLine(_AT, 20, "shop", f"attempt {one.run.attempt}")],
                        sent=one.job,
                    )
                    for one in reports
                ]
                await history_of(store).logs.add(logs)
        finally:
            await store.aclose()

    asyncio.run(add())


def test_sent_jobs_are_listed_and_counted_apart_from_stored_ones(site: Site) -> None:
    _keep(site, _report("@acme:order"), _report("@other:order", tenant="other"), _report(state=JobState.FAILED))

    listed = site("GET", "/jobs?filter=via:broker", by="acme-viewer").json()
    assert [
        (job["job_id"], job["via"], job["tenant"], job["state"]) for job in listed if job["job_id"] == "order"
    ] == [("order", "broker", "acme", "succeeded")]
    assert len(listed) == 2
    assert site("GET", "/jobs/count?filter=via:broker", by="acme-viewer").json()["count"] == 2
    assert site("GET", "/jobs/count?filter=via:broker", by="all-viewer").json()["count"] == 3
    assert site("GET", "/jobs/count?filter=via:broker status:failed", by="acme-viewer").json()["count"] == 1
    assert site("GET", "/jobs/count", by="all-viewer").json()["count"] == 0
    assert site("GET", "/jobs", by="all-viewer").json() == []


def test_stored_and_sent_jobs_are_in_one_list_in_pages(site: Site) -> None:
    stored: list[str] = []
    for number in range(3):
        _keep(site, _report(_new_id()))
        answer = site("POST", "/jobs", {**DOCUMENT, "job_id": f"order-{number}"}, by="acme-operator")
        assert answer.is_success, answer.text
        stored.append(site("GET", f"/jobs/order-{number}", by="acme-viewer").json()["id"])
    _keep(site, _report(_new_id(), state=JobState.FAILED))

    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = site("GET", f"/jobs?filter=via:any&limit=2&cursor={cursor}", by="acme-viewer").json()
        found += [job["id"] for job in page["items"]]
        cursor = page["next"]

    assert (len(found), found) == (7, sorted(found, reverse=True))
    assert set(stored) < set(found)
    assert site("GET", "/jobs/count?filter=via:any", by="acme-viewer").json()["count"] == 7
    assert site("GET", "/jobs/count?filter=via:any status:failed", by="acme-viewer").json()["count"] == 1
    assert site("GET", "/jobs?filter=via:any", by="other-admin").json() == []
    refused = site("GET", "/jobs/histogram?filter=via:any", by="acme-viewer")
    assert (refused.status_code, "via:any selects sent jobs" in refused.text) == (400, True)


def test_the_page_of_a_sent_job_has_its_attempts_log_and_refusals(site: Site) -> None:
    error = ErrorRecord(type_name="ValueError", message="refused", traceback="Traceback")
    first = _report("@acme:order", state=JobState.RETRYING, error=error)
    last = RunReport(
        first.job, RecordedRun(attempt=2, worker="w", started=_AT + 950, ended=_AT + 999, state=JobState.FAILED)
    )
    _keep(site, first, last, lines=True)

    job = site("GET", "/jobs/order?expand=payload,result,options", by="acme-viewer").json()
    assert (job["via"], job["state"], job["attempt"], job["payload"]) == ("broker", "failed", 2, None)
    assert set(job["refusals"]) == {"hold", "release", "retry", "clone", "cancel", "change"}
    assert "taskmq dlq replay" in job["refusals"]["retry"]
    attempts = site("GET", "/jobs/order/attempts", by="acme-viewer").json()["items"]
    assert [(one["attempt"], one["state"], one["worker"]) for one in attempts] == [
        (1, "failed", "w"),
        (2, "failed", "w"),
    ]
    lines = site("GET", "/jobs/order/logs?attempt=2", by="acme-viewer").json()["items"]
    assert [(line["attempt"], line["message"]) for line in lines] == [(2, "attempt 2")]
    assert site("GET", "/jobs/order/history", by="acme-viewer").json()["items"] == []
    assert site("GET", "/jobs/order/explain", by="acme-viewer").json()["items"] == []
    found = site("GET", "/logs?text=attempt", by="acme-viewer").json()["items"]
    assert {line["id"] for line in found} == {job["id"]}
    for path in ("", "/attempts", "/logs"):
        assert site("GET", f"/jobs/{job['id']}{path}", by="other-admin").status_code == 404, path


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.QUEUED, JobState.RETRYING])
def test_a_waiting_sent_job_is_explained(site: Site, state: JobState) -> None:
    _keep(site, _report("@acme:order", state=state))

    items = site("GET", "/jobs/order/explain", by="acme-viewer").json()["items"]

    assert items
    assert "scheduler" not in {item["kind"] for item in items}


@pytest.mark.parametrize("action", ["hold", "release", "retry", "clone"])
def test_actions_of_stored_jobs_are_refused_for_sent_ones(site: Site, action: str) -> None:
    _keep(site, _report("@acme:order"))

    answer = site("POST", f"/jobs/order/{action}", {}, by="acme-operator")

    assert answer.status_code == 409
    assert "was sent to the broker and is not in the store" in answer.json()["detail"]


async def _in_app(url: str, *, folder: Path) -> TaskMQ:
    app = TaskMQ(url, state=url, store=f"sqlite:///{folder}/jobs.db")

    @app.task(name="mail", queue="mails")
    async def mail() -> None:
        """Is only sent."""

    return app


@pytest.mark.real_time
async def test_a_running_sent_job_is_asked_to_stop(tmp_path: Path) -> None:
    running, ended = _report("@acme:a", state=JobState.RUNNING), _report("@acme:b")
    async with await _in_app(new_url(), folder=tmp_path) as app:
        await app.jobs.recorded.store.add([running, ended])
        after = await app.jobs.acancel("a", tenant="acme", note="not needed")

        assert (after.state, after.cancel_requested) == (JobState.RUNNING, "not needed")
        revocations = require_store(app.sessions.current().stores.revocations, "this test needs")
        assert [(one.job_id, one.reason) for one in await revocations.since(0, limit=9)] == [
            ("@acme:a", "not needed")
        ]
        with pytest.raises(JobConflict, match="job b has ended"):
            await app.jobs.acancel("b", tenant="acme")
        with pytest.raises(JobConflict, match="has version 1, not 7"):
            await app.jobs.acancel("a", tenant="acme", version=7)
        with pytest.raises(JobConflict, match="does not wait for its time in the state"):
            await app.jobs.achange("a", tenant="acme", delay="5m")
        with pytest.raises(JobNotFound):
            await app.jobs.acancel("a", tenant="other")


@pytest.mark.real_time
async def test_a_sent_job_that_waits_in_the_state_is_rescheduled_and_cancelled(tmp_path: Path) -> None:
    url = new_url()
    async with TaskMQ(url, state=url, delay="state") as sender, await _in_app(url, folder=tmp_path) as app:

        @sender.task(name="mail", queue="mails")
        async def mail() -> None:
            """Is only sent."""

        job = await mail.options(delay="1h").asend()
        waiting = _report(job.id, state=JobState.RETRYING, tenant="")
        await app.jobs.recorded.store.add([waiting])
        record = await app.jobs.aget(job.id)
        due = datetime(2099, 1, 31, tzinfo=UTC)

        assert set(await app.jobs.recorded.refusals(record)) == {"hold", "release", "retry", "clone"}
        assert (await app.jobs.achange(job.id, at=due)).due == round(due.timestamp() * 1000)
        moved = await app.jobs.sent.find_waiting(job.id)
        assert isinstance(moved, WaitingMessage)
        assert moved.due == round(due.timestamp() * 1000)
        with pytest.raises(JobConflict, match="was sent to the broker"):
            await app.jobs.achange(job.id, priority=9)

        after = await app.jobs.acancel(job.id)

        assert (after.state, after.started, after.error and after.error.message) == (
            JobState.CANCELLED,
            None,
            "cancelled by an operator",
        )
        assert await app.jobs.sent.find_waiting(job.id) is None
        assert "it has ended" in (await app.jobs.recorded.refusals(after))["cancel"]


@pytest.mark.real_time
async def test_the_result_of_a_sent_job_stays_the_states(tmp_path: Path) -> None:
    async with await _in_app(new_url(), folder=tmp_path) as app:
        await app.jobs.recorded.store.add([_report("order", tenant="")])

        assert await app.jobs.find_result("order") is None
        assert await app.job("order").astate() is JobState.UNKNOWN


@pytest.mark.real_time
async def test_a_sent_job_takes_no_signal(tmp_path: Path) -> None:
    async with await _in_app(new_url(), folder=tmp_path) as app:
        await app.jobs.recorded.store.add([_report("order", tenant="", state=JobState.RUNNING)])

        with pytest.raises(JobConflict, match="was sent to the broker"):
            await app.jobs.asignal("order", "go")


@pytest.mark.real_time
async def test_an_app_without_a_state_refuses_to_cancel_sent_jobs(tmp_path: Path) -> None:
    async with TaskMQ("amqp://127.0.0.1:1/", store=f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.jobs.recorded.store.add([_report("order", tenant="", state=JobState.RUNNING)])

        assert "needs a state" in (await app.jobs.recorded.refusals(await app.jobs.aget("order")))["cancel"]
        with pytest.raises(UnsupportedFeature, match="cancelling needs a state"):
            await app.jobs.acancel("order")
