"""Jobs whose tasks sleep, in an app without a state."""

import asyncio
from functools import partial

import pytest

from taskmq import Context, TaskMQ
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import RETRY, Shop, in_shop

_MINUTE = 60_000
_made: list[str] = []


async def _make(name: str) -> str:
    _made.append(name)
    return name


def define_sleepers(app: TaskMQ) -> None:
    """Define tasks that sleep."""

    @app.task(name="remind", queue="work", retry=RETRY, idempotency_key="order")
    async def remind(context: Context, order: int) -> tuple[int, list[str]]:
        found = [await context.astep("first", _make, "first")]
        await context.asleep("2m")
        found.append(await context.astep("second", _make, f"second {order}"))
        await context.asleep("3m")
        return context.attempt, found

    @app.task(name="together", queue="work", retry=None)
    async def together(context: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.asleep("2m"))
            group.create_task(context.asleep("1m"))
        return "awake"


in_own_store = partial(in_shop, has_state=False, also=define_sleepers)


@pytest.fixture(autouse=True)
def _forget() -> None:
    _made.clear()


async def _becomes(shop: Shop, job_id: str, state: JobState) -> None:
    while (await shop.jobs.aget(job_id)).state is not state:
        await asyncio.sleep(1)


@run_by(in_own_store)
async def test_a_sleeping_job_wakes_after_its_time_in_the_same_attempt(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("remind", 7)

    assert await job.aresult(timeout="9m") == (1, ["first", "second 7"])
    assert _made == ["first", "second 7"]
    record = await shop.jobs.aget(job.id)
    assert record.finished is not None
    assert record.first_started is not None
    assert 5 * _MINUTE <= record.finished - record.first_started < 6 * _MINUTE
    assert [(each.attempt, each.error) for each in await shop.jobs.aattempts(job.id)] == [(1, None)]


@run_by(in_own_store)
async def test_a_sleeping_job_says_how_long_it_sleeps(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("remind", 7)
    await _becomes(shop, job.id, JobState.SCHEDULED)

    record = await shop.jobs.aget(job.id)
    (listed,) = (await shop.jobs.alist(JobFilter(states=frozenset({JobState.SCHEDULED})))).jobs
    reasons = (await shop.jobs.aexplain(job.id)).reasons

    assert record.suspension.startswith("asleep until ")
    assert listed.suspension == record.suspension
    assert reasons[0].startswith(f"it is {record.suspension}, in 1")
    assert not any("failed" in reason for reason in reasons)
    await job.acancel()
    assert (await shop.jobs.aget(job.id)).suspension == ""


@run_by(in_own_store)
async def test_concurrent_sleeps_of_a_job_end_one_after_the_other(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("together")

    assert await job.aresult(timeout="9m") == "awake"
    record = await shop.jobs.aget(job.id)
    assert record.finished is not None
    assert 2 * _MINUTE <= record.finished - record.submitted < 3 * _MINUTE
