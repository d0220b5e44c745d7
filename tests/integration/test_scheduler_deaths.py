"""A scheduler that dies at each step of its loop, on PostgreSQL and SQLite, and one that wakes up after its lease."""

from pathlib import Path
from typing import Final

import pytest

from taskmq.contracts.jobs import Pick, partition_key
from taskmq.model.states import JobState
from tests.integration.scheduler_stage import JOBS, Database, file_database, open_stage, postgres_database

pytestmark = pytest.mark.real_time

# Where it dies: its last action, and the total number of publishes of each job's invitation.
_STEPS: Final = {
    "its jobs are dispatched and not published": ("after dispatch", 1),
    "its jobs are published and not confirmed": ("after publish", 2),
    "its jobs are confirmed and the store is not told": ("before confirm", 2),
    "its batch is confirmed in the store": ("after confirm", 1),
    "reports have come and are not applied": ("before apply", 1),
    "reports are applied and not acknowledged": ("after apply", 1),
    "all jobs have ended and the batch is not forgotten": ("before forget", 1),
}
# One before, between and after the two confirmations, and one that meets applied reports again.
_OF_GATE: Final = {
    "its jobs are dispatched and not published",
    "its jobs are confirmed and the store is not told",
    "reports have come and are not applied",
    "reports are applied and not acknowledged",
}
_LATER: Final = (
    pytest.mark.nightly(
        "tests/integration/test_scheduler_deaths.py::test_a_scheduler_that_dies_loses_no_job_and_ends_none_twice"
    ),
)


@pytest.fixture(
    params=[
        "postgresql",
        pytest.param(
            "sqlite",
            marks=pytest.mark.nightly("tests/integration/test_scheduler_deaths.py"),
        ),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return file_database(tmp_path / "jobs.db")
    return postgres_database(request.getfixturevalue("postgres_server"), request.getfixturevalue("job_store_url"))


@pytest.mark.parametrize("where", [pytest.param(step, marks=_LATER * (step not in _OF_GATE)) for step in _STEPS])
async def test_a_scheduler_that_dies_loses_no_job_and_ends_none_twice(database: Database, where: str) -> None:
    step, published = _STEPS[where]

    async with open_stage(database) as stage:
        await stage.consume()
        ids = await stage.submit()
        first = stage.start(step)
        if not step.endswith(("dispatch", "publish", "confirm")):
            await stage.until(lambda: database.sql(database.confirmed) == "1")
            await stage.finish()
        await first.die()

        second = stage.start()
        # Jobs whose reports wait by now are not published again.
        await stage.until(lambda: len(stage.invitations) == published * JOBS)
        jobs = await stage.until_ended(ids)
        await stage.until(lambda: database.sql(database.batches) == "0")

        # Every job was dispatched once, as its first attempt, and has one accepted end: versions 1, 2, 3.
        assert [job.state for job in jobs] == [JobState.SUCCEEDED] * JOBS
        assert {(job.token >> 32, job.attempt, job.version) for job in jobs} == {(1, 1, 3)}
        assert len(stage.invitations) == published * JOBS
        tokens = {each.store.token for each in stage.invitations if each.store is not None}
        assert tokens == {job.token for job in jobs}
        await second.stop()


@pytest.mark.parametrize(
    "step",
    [
        "after take_over",
        pytest.param(
            "before take_over",
            marks=pytest.mark.nightly(
                "tests/integration/test_scheduler_deaths.py::test_the_next_holder_may_die_halfway_through_a_take_over"
            ),
        ),
    ],
)
async def test_the_next_holder_may_die_halfway_through_a_take_over(database: Database, step: str) -> None:
    async with open_stage(database) as stage:
        await stage.consume()
        ids = await stage.submit()
        first = stage.start("after dispatch")
        await first.die()
        second = stage.start(step)
        await second.die()

        third = stage.start()
        jobs = await stage.until_ended(ids)

        assert {(job.state, job.token >> 32, job.version) for job in jobs} == {(JobState.SUCCEEDED, 1, 3)}
        assert len(stage.invitations) == JOBS
        await third.stop()


async def test_a_holder_that_wakes_up_late_is_refused_by_its_epoch(database: Database) -> None:
    async with open_stage(database) as stage:
        dispatching = stage.store.dispatching
        partition, key = dispatching.partition_of("work"), partition_key(dispatching.partition_of("work"))
        late = await dispatching.leases.acquire(key, owner="late", seconds=5)
        assert isinstance(late, int)
        await stage.submit()
        (lane,) = await dispatching.lanes(partition)
        first = await dispatching.dispatch(partition, late, [Pick(lane, 1)])
        assert first is not None
        # It is suspended for longer than its lease, and another one takes over the partition.
        database.sql(database.expire)
        other = database.open()
        present = await other.dispatching.leases.acquire(key, owner="present", seconds=5)
        assert isinstance(present, int)
        assert present > late
        (taken,) = await other.dispatching.take_over(partition, present)

        assert not await dispatching.leases.renew(key, token=late, seconds=5)
        assert await dispatching.dispatch(partition, late, [Pick(lane, 100)]) is None
        assert await dispatching.take_over(partition, late) == []
        second = await other.dispatching.dispatch(partition, present, [Pick(lane, 100)])

        assert second is not None
        # Timely dispatches belong to the present holder, with the same token; it dispatches the rest itself.
        assert taken.jobs == first.jobs
        assert len(second.jobs) == JOBS - 1
        assert not {job.id for job in first.jobs} & {job.id for job in second.jobs}
        await other.aclose()
