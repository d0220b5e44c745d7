"""Cancelling through the state, whose record may be older than the caller's knowledge."""

import pytest

from taskmq import TaskMQ
from taskmq.contracts.stores import ResultRecord, require_store
from taskmq.model.states import Cancellation, JobState
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(
    ("known", "cancelled", "revoked"),
    [(None, Cancellation.ENDED, []), (JobState.RUNNING, Cancellation.REQUESTED, ["7"])],
)
async def test_a_job_that_runs_again_can_be_cancelled_after_an_earlier_end(
    known: JobState | None, cancelled: Cancellation, revoked: list[str]
) -> None:
    async with TaskMQ(new_url()) as app:
        sent = app.jobs.sent
        await sent.results().put(
            ResultRecord(job_id="7", task="shop.sell", state=JobState.FAILED, attempt=1, finished=1), ttl=60
        )

        assert await sent.cancel_job("7", reason="why", remember="1d", state=known) is cancelled

        revocations = require_store(app.sessions.current().stores.revocations, "this test needs")
        assert [each.job_id for each in await revocations.since(0, limit=10)] == revoked
