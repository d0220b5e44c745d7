"""Short forms of the operations on schedules that tests use."""

from typing import Any, Final

from taskmq.contracts.jobs import (
    PARTITIONS,
    DueSchedule,
    JobScheduleStore,
    NewJob,
    OccurrenceJob,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    schedule_shard,
)
from taskmq.testing.job_store_suite.driver import JobDriver

APP: Final = "shop"
MINUTE: Final = 60_000


def firing_of(row: StoredSchedule, job: NewJob | None) -> ScheduleFiring:
    one = OccurrenceJob(instant=5, run="", kind="due", job=job)
    return ScheduleFiring(before=row, record=b"fired", next=None, occurrences=[one])


async def fire(driver: JobDriver, firings: list[ScheduleFiring]) -> set[int] | None:
    """Fire under the next epoch of the partition of the first firing."""
    partition = schedule_shard(APP, firings[0].before.name) % driver.schedulers.partitions
    return await driver.store.schedules.fire(partition, await driver.next_epoch(partition), firings)


async def create_schedule(schedules: JobScheduleStore, name: str, **fields: Any) -> StoredSchedule:
    assert await schedules.write([ScheduleChange(app=APP, name=name, before=None, **fields)]) == [True]
    return await read(schedules, name)


async def change_schedule(schedules: JobScheduleStore, row: StoredSchedule, **fields: Any) -> StoredSchedule:
    assert await schedules.write([ScheduleChange(app=APP, name=row.name, before=row, **fields)]) == [True]
    return await read(schedules, row.name)


async def read(schedules: JobScheduleStore, name: str) -> StoredSchedule:
    (row,) = await schedules.find(APP, [name])
    assert row is not None, f"schedule {name} is gone"
    return row


async def due_of(schedules: JobScheduleStore, name: str) -> list[DueSchedule]:
    """Return the due schedules in the shard of this one."""
    shard = schedule_shard(APP, name)
    found = [
        each for partition in range(PARTITIONS) for each in await schedules.due(partition, until=2**52, limit=100)
    ]
    return [each for each in found if each.shard == shard]


def beside(name: str, driver: JobDriver) -> str:
    """Return another name whose schedule has the same partition."""
    partitions = driver.schedulers.partitions
    wanted = schedule_shard(APP, name) % partitions
    return next(other for n in range(1_000) if schedule_shard(APP, other := f"{name}{n}") % partitions == wanted)
