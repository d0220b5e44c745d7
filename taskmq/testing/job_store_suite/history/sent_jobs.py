"""Tests of records of sent jobs."""

import asyncio
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.history import FailureFilter, sent_attempts, sent_record
from taskmq.contracts.jobs import Retaining
from taskmq.model.history.logs import LogFilter, RunLine, RunLog
from taskmq.model.history.rollups import RunFailure
from taskmq.model.history.sent_runs import RecordedRun, RunReport, SentJobFacts
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import new_id
from taskmq.testing.job_store_suite.history.kit import HistoryCase, history_of
from taskmq.testing.runner import case

_AT: Final = 1_700_000_000_000
_FAILED: Final = frozenset({JobState.FAILED})


def _facts(at: int = 0, **fields: Any) -> SentJobFacts:
    given: dict[str, Any] = {"name": new_id(_AT + at), "task": "mail", "queue": "mails", "sent": _AT + at, **fields}
    return SentJobFacts(**given)


def _run(**fields: Any) -> RecordedRun:
    given: dict[str, Any] = {
        "worker": "w",
        "started": _AT + 10,
        "ended": _AT + 30,
        "state": JobState.SUCCEEDED,
        **fields,
    }
    return RecordedRun(**given)


def _report(at: int = 0, *, state: JobState = JobState.SUCCEEDED, **fields: Any) -> RunReport:
    return RunReport(_facts(at, **fields), _run(state=state))


class SentJobCases(HistoryCase):
    """Every guarantee of `SentJobStore`."""

    @case
    async def test_a_sent_job_is_read_back_with_all_its_runs(self) -> None:
        jobs = self.history().sent_jobs
        facts = _facts(name="@acme:order ☂", tenant="acme", priority=8)
        error = ErrorRecord(type_name="ValueError", message="no\0 ☂", traceback="Traceback ...")
        first = _run(state=JobState.RETRYING, due=_AT + 50, error=error, processor_ms=3)
        last = _run(attempt=2, worker="host:1 ☂", started=_AT + 60, ended=_AT + 61)

        assert await jobs.add([RunReport(facts, last), RunReport(facts, first)]) == 1

        found = await self.history().sent_jobs.find("@acme:order ☂")
        assert found is not None
        assert await jobs.find(found.id) == found
        record = sent_record(found)
        assert (record.via, record.tenant, record.key, record.task, record.queue) == (
            "broker",
            "acme",
            "order ☂",
            "mail",
            "mails",
        )
        assert (record.state, record.attempt, record.priority, record.worker) == (
            JobState.SUCCEEDED,
            2,
            8,
            "host:1 ☂",
        )
        assert (record.submitted, record.first_started, record.started, record.finished) == (
            _AT,
            _AT + 10,
            _AT + 60,
            _AT + 61,
        )
        kept = ErrorRecord(type_name="ValueError", message="no\\x00 ☂", traceback="Traceback ...")
        assert [(one.attempt, one.state, one.error, one.processor_ms) for one in sent_attempts(found)] == [
            (1, JobState.FAILED, kept, 3),
            (2, JobState.SUCCEEDED, None, None),
        ]
        for unknown in ("order ☂", "@other:order ☂", new_id(_AT), "", "\0"):
            assert await jobs.find(unknown) is None, unknown

    @case
    async def test_repeated_and_concurrent_reports_leave_one_record_of_each_run(self) -> None:
        facts = _facts()
        running = _run(ended=None, state=JobState.RUNNING)
        reports = [
            RunReport(facts, each)
            for each in (running, _run(state=JobState.RETRYING), _run(attempt=2, started=_AT + 40, ended=_AT + 50))
        ]
        stores = [self.history().sent_jobs for _ in range(2)]

        await asyncio.gather(*(stores[number % 2].add([reports[number % 3]]) for number in range(12)))

        found = await stores[0].find(facts.name)
        assert found is not None
        assert [run.attempt for run in (*found.earlier, found.last)] == [1, 2]
        assert await stores[0].add(reports) == 0
        assert (await stores[0].find(facts.name)) == found
        assert await stores[0].add([]) == 0

    @case
    async def test_the_job_of_a_chosen_id_is_the_one_sent_last(self) -> None:
        jobs = self.history().sent_jobs
        await jobs.add([_report(at, name="order-7") for at in (5, 9, 7)])

        found = await jobs.find("order-7")

        assert found is not None
        assert found.job.sent == _AT + 9
        assert await jobs.count(JobFilter(keys=("order-7",))) == 3

    @case
    async def test_sent_jobs_are_listed_newest_first_in_pages(self) -> None:
        jobs = self.history().sent_jobs
        reports = [_report(at) for at in range(5)]
        await jobs.add(reports)
        newest = [report.job.name for report in reversed(reports)]

        first = await jobs.page(JobFilter(), limit=2)
        second = await jobs.page(JobFilter(), after=first.after, limit=2)
        third = await jobs.page(JobFilter(), after=second.after, limit=2)

        assert [[job.id for job in page.jobs] for page in (first, second, third)] == [
            newest[:2],
            newest[2:4],
            newest[4:],
        ]
        assert third.after is None
        assert (await jobs.page(JobFilter(), limit=0)).jobs == []

    @case
    async def test_every_field_of_a_filter_selects_sent_jobs(self) -> None:
        jobs = self.history().sent_jobs
        failed = replace(
            _report(1, name="mine", task="billing.pay", queue="pay", tenant="acme"),
            run=_run(
                attempt=3,
                started=_AT + 2_000,
                ended=_AT + 9_000,
                state=JobState.FAILED,
                error=ErrorRecord(type_name="Refused", message=""),
            ),
        )
        waiting = replace(_report(2), run=_run(state=JobState.RETRYING, due=_AT + 90_000))
        await jobs.add([_report(), failed, waiting])
        ((record_id,),) = [[job.id for job in (await jobs.page(JobFilter(keys=("mine",)))).jobs]]

        for which, count in (
            (JobFilter(), 3),
            (JobFilter(via="broker"), 3),
            (JobFilter(states=_FAILED), 1),
            (JobFilter(states=frozenset({JobState.FAILED, JobState.SUCCEEDED})), 2),
            (JobFilter(states=frozenset({JobState.UNKNOWN})), 0),
            (JobFilter(tenant="acme"), 1),
            (JobFilter(tenant="", states=_FAILED), 0),
            (JobFilter(tasks=("mail", "other")), 2),
            (JobFilter(task_prefix="billing."), 1),
            (JobFilter(queues=("pay",)), 1),
            (JobFilter(keys=("mine", "other")), 1),
            (JobFilter(errors=("Refused",)), 1),
            (JobFilter(ids=(record_id, "x")), 1),
            (JobFilter(ids=("x",)), 0),
            (JobFilter(submitted_from=_AT + 1), 2),
            (JobFilter(submitted_before=_AT + 1), 1),
            (JobFilter(due_from=_AT + 90_000), 1),
            (JobFilter(due_before=_AT + 90_000), 2),
            (JobFilter(finished_from=_AT + 9_000), 1),
            (JobFilter(finished_before=_AT + 9_000), 1),
            (JobFilter(min_attempt=2), 1),
            (JobFilter(min_ran=7_000), 1),
            (JobFilter(min_waited=1_000), 1),
            (JobFilter(labels=(("team", "ops"),)), 0),
            (JobFilter(retried="yes"), 0),
            (JobFilter(retried="no"), 3),
        ):
            assert await jobs.count(which) == len((await jobs.page(which)).jobs) == count, which
        assert await jobs.count(JobFilter(), cap=1) == 2

    @case
    async def test_sent_jobs_are_no_stored_jobs(self) -> None:
        driver = self.driver()
        report = _report()
        await history_of(driver).sent_jobs.add([report])

        for which in (JobFilter(), JobFilter(via="broker")):
            assert (await driver.store.list_jobs(which)).jobs == []
            assert await driver.store.count_jobs(which) == 0
        assert await driver.store.get(report.job.name) is None
        job = await driver.submit()
        assert await driver.store.count_jobs(JobFilter(via="broker")) == 0
        assert await history_of(driver).sent_jobs.find(job.id) is None

    @case
    async def test_lines_of_a_sent_job_are_in_no_log_of_a_stored_job(self) -> None:
        driver = self.driver()
        logs = history_of(driver).logs
        stored = await driver.dispatch_new()
        facts = _facts(name=stored.id, tenant="acme")
        lines = [RunLine(_AT, 20, "shop", message) for message in ("one", "two")]
        log = RunLog(id=facts.name, token=stored.token, attempt=2, worker="w", lines=lines, sent=facts)

        assert await logs.add([log]) == 2
        assert await logs.add([log]) == 0

        assert (await logs.page(LogFilter(job=stored.id))).lines == []
        second, first = (await logs.page(LogFilter(job=stored.id, is_sent=True))).lines
        assert (first.message, second.message, first.job) == ("one", "two", stored.id)
        assert (first.attempt, first.worker, first.tenant, first.task, first.queue) == (
            2,
            "w",
            "acme",
            "mail",
            "mails",
        )

    @case
    async def test_ended_sent_jobs_are_deleted_by_their_ids_with_their_lines(self) -> None:
        history = self.history()
        ended, other, live = (_report(), _report(1), _report(2, state=JobState.RUNNING))
        await history.sent_jobs.add([ended, other, live])
        names = [one.job.name for one in (ended, other, live)]
        lines = [RunLine(_AT, 20, "shop", "hello")]
        await history.logs.add(
            [RunLog(id=one.job.name, token=1, lines=lines, sent=one.job) for one in (ended, other)]
        )
        await history.rollups.add(
            [], [RunFailure(at=_AT, event="dead", job=name, task="mail", queue="mails") for name in names]
        )

        assert await history.sent_jobs.forget_ended([ended.job.name, live.job.name, new_id(_AT), "x"]) == 1

        assert [job.id for job in (await history.sent_jobs.page(JobFilter())).jobs] == [names[2], names[1]]
        assert [len((await history.logs.page(LogFilter(job=name, is_sent=True))).lines) for name in names] == [
            0,
            1,
            0,
        ]
        assert {one.job for one in (await history.rollups.failures(FailureFilter())).failures} == {names[1], names[2]}

    @case
    async def test_old_sent_jobs_and_those_of_an_erased_tenant_are_deleted(self) -> None:
        driver = self.driver()
        jobs = history_of(driver).sent_jobs
        await jobs.add([_report(at, tenant=tenant) for at in (0, 1, 2, 3) for tenant in ("", "acme")])

        assert await jobs.forget(before=_AT + 2, limit=3) == 3
        assert await jobs.forget(before=_AT + 2) == 1
        assert await jobs.count(JobFilter()) == 4
        if isinstance(driver.store, Retaining):
            await driver.store.forget_tenant("acme")
            assert (await jobs.count(JobFilter(tenant="acme")), await jobs.count(JobFilter())) == (0, 2)
