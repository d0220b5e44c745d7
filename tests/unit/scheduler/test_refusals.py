"""Jobs that workers refuse: longer and longer delays, and a failure after an hour."""

import asyncio

import pytest
from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, DueJob, JobRecord
from taskmq.model.jobs.reports import Report
from taskmq.model.outcome import ErrorRecord
from taskmq.scheduler.reports.refusals import judge, judge_refusals
from taskmq.testing import FakeClock
from taskmq.testing.job_store.values import shard_of
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.unit.store_kit import StagedStore

_HOUR = 3_600_000
_REPORT = Report(
    id="1",
    token=1,
    kind="refused",
    delay=5_000,
    error=ErrorRecord(type_name="Refused", message="task 'a' is unknown"),
)


@pytest.mark.parametrize(
    ("before", "delay", "expected"),
    [(0, 5_000, 5_000), (1, 5_000, 10_000), (5, 5_000, 160_000), (6, 5_000, 300_000), (400, 5_000, 300_000),
     (3, 400_000, 400_000), (3, 0, 0)],
)  # fmt: skip
def test_the_delay_doubles_with_each_refusal_up_to_five_minutes(before: int, delay: int, expected: int) -> None:
    found = judge_refusals(replace(_REPORT, delay=delay), [_HOUR] * before, 2 * _HOUR - 1)

    assert found == replace(_REPORT, delay=expected)


def test_after_an_hour_of_refusals_the_job_fails_with_the_last_reason() -> None:
    found = judge_refusals(_REPORT, [_HOUR, 2 * _HOUR - 1], 2 * _HOUR)

    assert (found.kind, found.delay) == ("failed", 0)
    assert found.error is not None
    assert found.error.message == "refused by workers for an hour: task 'a' is unknown"
    assert judge_refusals(replace(_REPORT, error=None), [_HOUR], 2 * _HOUR).error is not None


@pytest.mark.parametrize(("between", "kind"), [("nothing", "failed"), ("a run", "refused")])
def test_consecutive_refusals_count_together(between: str, kind: str) -> None:
    clock = FakeClock()

    async def main() -> Report:
        store = StagedStore(clock=clock)
        driver = JobDriver(store)
        refused = await driver.expect_accepted(await driver.dispatch_new(), "refused")
        if between == "a run":
            refused = await driver.expect_accepted(await _again(driver, refused), "snoozed")
        clock.advance("61m")
        again = await _again(driver, refused)
        return await judge(replace(_REPORT, id=again.id, token=again.token), store)

    assert asyncio.run(main()).kind == kind


async def _again(driver: JobDriver, job: JobRecord) -> DispatchedJob:
    """Return the job after it was due, fired and dispatched."""
    shard = shard_of(job.id)
    partition = shard % driver.schedulers.partitions
    await driver.schedulers.fire(partition, await driver.next_epoch(partition), [DueJob(job.due, job.id, shard)])
    (found,) = (await driver.dispatch(queue=job.queue)).jobs
    return found
