"""Tests of a store restored from a backup, for adapters whose database a test can copy."""

from typing import Final

from taskmq.contracts.jobs import DispatchedJob, JobRecord
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import report
from taskmq.testing.runner import case

_QUEUE: Final = "taskmq.reports.suite.0"


class RestoredStores(JobStoreCase):
    """Guarantees of a restored store; each test closes its stores before the restore.

    class TestMine(RestoredStores): ...
    """

    async def back_up(self) -> None:
        """Back up the database."""
        raise NotImplementedError

    async def restore(self) -> None:
        """Restore the backup of the database."""
        raise NotImplementedError

    @case
    async def test_dispatches_after_the_backup_end_by_proof_and_forged_ones_do_not(self) -> None:
        driver = self.driver()
        waits, scheduled = await driver.submit(queue="waits"), await driver.make(JobState.SCHEDULED)
        held, runs = await driver.make(JobState.HELD), await driver.dispatch_new(queue="runs")
        (key, *_) = await driver.schedulers.report_keys()
        before = [await driver.read(job) for job in (waits, scheduled, held, runs)]
        await self.opened.aclose()
        await self.back_up()
        driver = self.driver()
        sent = [await driver.again(job) for job in (waits, scheduled)]
        await driver.expect_accepted(runs, "retry")
        sent.append(await driver.again(runs))
        proven = [report(job, "succeeded", proof=key.prove(job.id, job.token, _QUEUE)) for job in sent]
        await self.opened.aclose()

        await self.restore()

        driver = self.driver()
        forged = [
            _forged_report(job, token) for job in before for token in (job.token ^ 1, job.token + 2**33, 2**53 - 1)
        ]
        refused = await driver.schedulers.apply(forged, came_by=_QUEUE)
        after = [await driver.read(job) for job in before]
        counted = await driver.schedulers.apply(proven, came_by=_QUEUE)
        assert {each.outcome for each in refused} == {"invented"}
        assert [(job.state, job.token) for job in after] == [(job.state, job.token) for job in before]
        assert [(each.outcome, each.state) for each in counted] == [("accepted", JobState.SUCCEEDED)] * len(sent)
        assert await driver.state(held) is JobState.HELD

    @case
    async def test_a_key_newer_than_the_backup_proves_nothing_and_the_job_reruns(self) -> None:
        driver = self.driver()
        waits = await driver.submit()
        (older,) = await driver.schedulers.report_keys()
        await self.opened.aclose()
        await self.back_up()
        driver = self.driver()
        await driver.schedulers.rotate_report_key()
        (key, _) = await driver.schedulers.report_keys()
        sent = await driver.again(waits)
        proven = report(sent, "succeeded", proof=key.prove(sent.id, sent.token, _QUEUE))
        await self.opened.aclose()

        await self.restore()

        driver = self.driver()
        (refused,) = await driver.schedulers.apply([proven], came_by=_QUEUE)
        assert refused.outcome == "invented"
        assert [each.id for each in await driver.schedulers.report_keys()] == [older.id]
        assert (await driver.expect_accepted(await driver.again(waits), "succeeded")).state is JobState.SUCCEEDED


def _forged_report(job: JobRecord | DispatchedJob, token: int) -> Report:
    return Report(id=job.id, token=token, kind="succeeded", worker="evil", result=b"forged")
