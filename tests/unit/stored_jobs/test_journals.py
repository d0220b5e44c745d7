"""Progress, saved steps and checkpoints of stored jobs, in an app without a state."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from taskmq import Context, Job, TaskMQ
from taskmq.errors import RunSuperseded, TaskFailed
from taskmq.model.history.journals import LARGEST_SAVED, SaveRequest
from taskmq.model.history.signals import MOST_SAVED
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.servers.waiting import until
from tests.unit.scheduler.stage import HeardBroker
from tests.unit.stored_jobs.kit import RETRY, Shop, in_shop

_made: list[str] = []


async def _make(name: str, size: int = 0) -> str:
    _made.append(name)
    return name + "." * size


def define_steps(app: TaskMQ) -> None:
    """Define tasks that report and save."""

    @app.task(name="in_steps", queue="work", retry=RETRY)
    async def in_steps(context: Context, fails: int) -> list[str]:
        found = [await context.astep("a", _make, "a"), await context.astep("b", _make, "b")]
        if context.attempt <= fails:
            raise ValueError("not yet")
        found.append(await context.astep("c", _make, f"c{context.attempt}"))
        return found

    @app.task(name="too_much", queue="work", retry=None)
    async def too_much(context: Context) -> None:
        await context.astep("half", _make, "half", LARGEST_SAVED // 2)
        await context.astep("rest", _make, "rest", LARGEST_SAVED // 2)

    @app.task(name="too_many", queue="work", retry=None)
    async def too_many(context: Context) -> None:
        for number in range(MOST_SAVED + 1):
            await context.astep(str(number), _make, "n")

    @app.task(name="loop", queue="work", retry=RETRY)
    async def loop(context: Context, until: int) -> list[object]:
        await context.resume()
        before = [context.last_checkpoint, context.last_heartbeat]
        context.progress(context.attempt, until, "at work")
        context.heartbeat(f"attempt {context.attempt}")
        await context.acheckpoint(context.attempt * 10)
        await asyncio.sleep(3)
        context.progress(until, until)
        if context.attempt < until:
            raise ValueError("not yet")
        return before

    @app.task(name="overtaken", queue="work", retry=None)
    async def overtaken(context: Context, begins: bool) -> str:
        if begins:
            await context.astep("a", _make, "a")
        if "waits" not in _made:
            _made.append("waits")
            await asyncio.sleep(1)
        try:
            return await context.astep("b", _make, "b")
        except RunSuperseded:
            _made.append(f"superseded {context.cancelled}")
            raise

    @app.task(name="fences", queue="work", retry=RETRY)
    async def fences(context: Context, fails: int) -> int:
        await context.resume()
        if context.attempt <= fails:
            _made.append(str(context.fencing_token))
            raise ValueError("not yet")
        return context.fencing_token


in_own_store = partial(in_shop, has_state=False, also=define_steps)


@pytest.fixture(autouse=True)
def _forget() -> None:
    _made.clear()


@run_by(in_own_store)
async def test_a_saved_step_is_not_run_again_by_the_next_attempt(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("in_steps", 2)

    assert await job.aresult(timeout=120) == ["a", "b", "c3"]
    assert _made == ["a", "b", "c3"]


@run_by(in_own_store)
async def test_a_resumed_job_continues_from_the_steps_of_its_failed_run(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("in_steps", 3, job_id="order-17")
    with pytest.raises(TaskFailed):
        await job.aresult(timeout=120)

    await shop.jobs.aretry("order-17")

    assert await job.aresult(timeout=120) == ["a", "b", "c4"]
    assert _made == ["a", "b", "c4"]


@run_by(in_own_store)
async def test_a_job_saves_at_most_a_thousand_values(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("too_many")

    with pytest.raises(TaskFailed, match="has no room for the value of step '1000'"):
        await job.aresult(timeout="1h")
    assert len(_made) == MOST_SAVED + 1


@run_by(in_own_store)
async def test_a_run_reads_the_last_checkpoint_and_heartbeat(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("loop", 2)

    assert await job.aresult(timeout=120) == [10, "attempt 1"]


@run_by(in_own_store)
async def test_progress_is_read_while_the_job_runs_and_after_its_end(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("loop", 1, job_id="order-17")
    assert await job.aprogress() is None

    await asyncio.sleep(2)
    during = await job.aprogress()
    await job.aresult(timeout=60)
    last = await job.aprogress()

    assert during is not None
    assert (during.done, during.total, during.note, during.state) == (1, 1, "at work", JobState.RUNNING)
    assert last is not None
    assert (last.done, last.note, last.attempt, last.state) == (1, "", 1, JobState.SUCCEEDED)
    assert last.updated > during.updated


@run_by(in_own_store)
async def test_the_values_of_an_ended_job_are_deleted(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("loop", 1)
    await job.aresult(timeout=60)
    record = await shop.jobs.aget(job.id)

    while await shop.process.store.journals.values([record.id]):
        await asyncio.sleep(1)

    assert record.state is JobState.SUCCEEDED


@run_by(in_own_store)
async def test_a_step_fails_that_no_longer_fits_into_messages(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("too_much")

    with pytest.raises(TaskFailed, match=r"the value of step 'rest' of job .* set results_at="):
        await job.aresult(timeout=60)

    assert _made == ["half", "rest"]


@run_by(in_own_store)
async def test_each_run_has_a_larger_fencing_token(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("fences", 2)

    last = await job.aresult(timeout=120)

    assert int(_made[0]) < int(_made[1]) < last


@run_by(in_own_store)
async def test_a_step_whose_answer_is_lost_is_saved_once(shop: Shop, /) -> None:
    assert isinstance(shop.broker, HeardBroker)
    shop.broker.is_deaf = True
    job = await shop.jobs.asubmit("in_steps", 0)
    await asyncio.sleep(1)
    assert _made == []

    shop.broker.is_deaf = False

    assert await job.aresult(timeout=60) == ["a", "b", "c1"]
    assert _made == ["a", "b", "c1"]


@run_by(in_own_store)
async def test_a_run_that_no_scheduler_answers_is_interrupted_and_not_charged(shop: Shop, /) -> None:
    assert isinstance(shop.broker, HeardBroker)
    shop.broker.is_deaf = True
    job = await shop.jobs.asubmit("in_steps", 0)
    await asyncio.sleep(90)
    shop.broker.is_deaf = False

    assert await job.aresult(timeout=120) == ["a", "b", "c1"]
    (interrupted,) = [each for each in await shop.jobs.ahistory(job.id) if each.kind == "interrupted"]
    assert "no scheduler confirmed within 60 s" in interrupted.note


@run_by(in_own_store)
async def test_a_run_that_another_one_overtook_saves_and_reports_nothing_more(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("overtaken", True)
    await until(lambda: "waits" in _made)

    assert await _ask(shop, job, number=1, base=1)
    await asyncio.sleep(5)

    assert _made == ["a", "waits", "b", "superseded True"]
    assert (await shop.jobs.aget(job.id)).state is JobState.RUNNING
    assert shop.worker.status().running == 0


@run_by(in_own_store)
async def test_a_run_without_the_newest_values_is_replaced_by_one_that_has_them(shop: Shop, /) -> None:
    job = await shop.jobs.asubmit("overtaken", False)
    await until(lambda: "waits" in _made)

    fence = await _ask(shop, job, number=1)
    await _ask(shop, job, number=2, fence=fence, name="step b", value=msgspec.Raw(b'"saved"'))

    assert await job.aresult(timeout=300) == "saved"
    assert _made == ["waits", "superseded True"]


async def _ask(shop: Shop, job: Job[Any], **facts: Any) -> int:
    """Send a request of another run of the job; return the fence."""
    record = await shop.jobs.aget(job.id)
    request = SaveRequest(reply="worker.saved.x", run="other", **facts)
    report = Report(id=record.id, token=record.token, kind="saving", saving=request)
    (answer,) = await shop.process.store.journals.save([report])
    return answer.fence


@run_by(partial(in_shop, also=define_steps))
async def test_the_store_keeps_the_values_of_stored_jobs_beside_a_state(shop: Shop, /) -> None:
    stored = await shop.jobs.asubmit("in_steps", 1)
    assert await stored.aresult(timeout=120) == ["a", "b", "c2"]

    state = shop.app.sessions.current().state
    assert state is not None

    loop = await shop.jobs.asubmit("loop", 1)
    await loop.aresult(timeout=60)

    assert await state.progress.find(loop.id) is None
    assert _made == ["a", "b", "c2"]
