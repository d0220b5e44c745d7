"""Unique stored jobs: the effect of a second call."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskmq import Job, TaskMQ
from taskmq.errors import DuplicateJob, PartlySent
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import until
from tests.unit.stored_jobs.kit import Shop, in_shop


def _define(app: TaskMQ) -> None:
    @app.task(name="sync", queue="work", lane="store", unique="shop_id")
    async def sync(shop_id: int) -> int:
        return shop_id

    @app.task(name="index", queue="work", lane="store", unique="{shop_id}", unique_policy="debounce", delay="10s")
    async def index(shop_id: int, text: str) -> str:
        return text

    @app.task(
        name="latest", queue="work", lane="store", unique="shop_id", unique_policy="existing", unique_for="running"
    )
    async def latest(shop_id: int) -> int:
        return shop_id

    @app.task(name="report", queue="work", lane="store", unique=True, unique_policy="throttle", unique_ttl="20s")
    async def report(shop_id: int) -> int:
        return shop_id


def _in_shop(test: Callable[[Shop], Coroutine[None, None, None]]) -> None:
    in_shop(test, has_state=False, also=_define)


@run_by(_in_shop)
async def test_a_second_call_is_refused_with_the_id_of_the_waiting_job(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("sync", 7, delay="1h", job_id="mine", tenant="north")
    other: Job[Any] = await shop.jobs.asubmit("sync", 7, delay="1h")

    with pytest.raises(DuplicateJob, match="has the same unique key") as refused:
        await shop.jobs.asubmit("sync", 7, tenant="north")
    with pytest.raises(DuplicateJob) as sent:
        await shop.app.tasks["sync"].asend(7)

    assert (refused.value.job_id, refused.value.task) == (first.id, "sync")
    assert sent.value.job_id == other.id
    assert await shop.jobs.acount() == 2
    again: Job[Any] = await shop.jobs.asubmit("sync", 7, delay="1h", job_id="mine", tenant="north")
    assert again.id == first.id
    await first.acancel()
    assert (await shop.jobs.asubmit("sync", 7, tenant="north")).id != first.id


@run_by(_in_shop)
async def test_the_last_call_of_a_debounced_task_runs_once(shop: Shop, /) -> None:
    jobs: list[Job[Any]] = [await shop.jobs.asubmit("index", 7, text) for text in "abc"]

    assert await jobs[-1].aresult(timeout=60) == "c"
    assert [await job.astate() for job in jobs[:-1]] == [JobState.CANCELLED] * 2


@run_by(_in_shop)
async def test_a_call_returns_the_existing_job_until_that_has_ended(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("latest", 7, delay="1h")
    many: list[Job[Any]] = await shop.jobs.asubmit_many("latest", [(7,), (8,)])
    assert many[0].id == first.id
    assert [job.existing for job in many] == [JobState.SCHEDULED, None]
    assert await many[1].aresult(timeout=60) == 8

    await shop.jobs.aretry(first.id)
    assert await first.aresult(timeout=60) == 7
    assert (await shop.jobs.asubmit("latest", 7)).id != first.id


@run_by(_in_shop)
async def test_a_throttled_call_returns_the_first_job_even_if_it_has_ended(shop: Shop, /) -> None:
    first: Job[Any] = await shop.jobs.asubmit("report", 7)
    await until(lambda: shop.stage.job(first.id).state.is_final)

    assert (await shop.jobs.asubmit("report", 7)).id == first.id
    await shop.stage.pass_by(20)
    assert (await shop.jobs.asubmit("report", 7)).id != first.id


@run_by(_in_shop)
async def test_jobs_of_a_batch_with_free_keys_are_accepted(shop: Shop, /) -> None:
    await shop.jobs.asubmit("sync", 2, delay="1h")

    with pytest.raises(PartlySent) as partly:
        await shop.jobs.asubmit_many("sync", [(1,), (2,), (3,)])

    assert partly.value.sent == len(partly.value.job_ids) == 2
    assert isinstance(partly.value.failures[1], DuplicateJob)
    assert await shop.jobs.acount() == 3
