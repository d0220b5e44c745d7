"""Unique jobs: one per key waits, or waits or runs; and the fate of the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from taskmq import Context, TaskMQ, UnsupportedFeature
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import State
from taskmq.errors import (
    BrokerUnavailable,
    DuplicateJob,
    InvalidArguments,
    JobCancelled,
    PartlySent,
    PublishUnknown,
    StateUnavailable,
)
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import open_memory_state
from tests.coroutines import run_by
from tests.unit.app_kit import new_url
from tests.unit.worker.gate import working
from tests.unit.worker.staged import Fault, StagedApp, open_staged, settle_loop
from tests.virtual_time import run


class Desk:
    """A task with unique jobs, and a record of its runs."""

    def __init__(self, app: StagedApp, **options: Any) -> None:
        self.runs: list[str] = []
        self.failures = 0
        self.open = asyncio.Event()
        self.open.set()
        options.setdefault("unique", "shop")

        @app.task(name="sync", queue="work", **options)
        async def sync(context: Context, shop: str, n: int = 0) -> int:
            self.runs.append(f"{shop} {n}")
            await self.open.wait()
            if self.failures:
                self.failures -= 1
                raise ValueError
            return n

        self.task = sync


def _play(test: Callable[[StagedApp, Desk], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        with open_staged() as app:
            await test(app, Desk(app, **options))

    run(main())


def _state(app: StagedApp) -> State:
    return open_memory_state(app._memory, BrokerOptions(clock=app.fake_clock))


async def _pass(app: StagedApp, seconds: float) -> None:
    for _ in range(10):
        app.fake_clock.advance(seconds / 10)
        await asyncio.sleep(0.1)
        await settle_loop()


async def _send_calls(task: Any, calls: list[tuple[str, int]], how: str) -> None:
    if how == "many":
        await task.asend_many(calls)
    else:
        _ = [job async for job in task.asend_stream(calls)]


async def _is_free(app: StagedApp, key: str) -> bool:
    answer = await _state(app).claims.claim(f"unique:sync:{key}", job_id="probe", owner="waiting", lease=1, ttl=1)
    if hasattr(answer, "left"):
        return False
    await _state(app).claims.release(f"unique:sync:{key}", token=getattr(answer, "token", 0))
    return True


@run_by(_play)
async def test_a_second_job_of_a_key_is_refused_with_the_id_of_the_first_until_that_starts(
    app: StagedApp, desk: Desk, /
) -> None:
    first = await desk.task.asend("a", 1)
    with pytest.raises(DuplicateJob, match=first.id) as caught:
        await desk.task.asend("a", 2)
    assert (caught.value.job_id, caught.value.task) == (first.id, "sync")
    await desk.task.asend("b", 3)

    desk.open.clear()
    async with working(app, concurrency=2):
        await settle_loop()
        assert desk.runs == ["a 1", "b 3"]
        await desk.task.asend("a", 4)
        with pytest.raises(DuplicateJob):
            await desk.task.options(delay="1h").asend("a", 5)
        desk.open.set()
        await _pass(app, 1)
    assert desk.runs == ["a 1", "b 3", "a 4"]


@run_by(_play)
async def test_every_tenant_may_have_one_job_per_key(app: StagedApp, desk: Desk, /) -> None:
    await desk.task.asend("a", 1)
    for tenant in ("north", "south"):
        await desk.task.options(tenant=tenant).asend("a", 2)
        with pytest.raises(DuplicateJob):
            await desk.task.options(tenant=tenant).asend("a", 3)


@run_by(_play, unique_policy="existing")
async def test_the_existing_job_is_returned_instead_of_a_second_one(app: StagedApp, desk: Desk, /) -> None:
    first, second = await desk.task.asend("a", 1), await desk.task.asend("a", 2)

    assert first.id == second.id
    assert (await app.stats("work")).ready == 1


@run_by(_play, unique_policy="replace")
async def test_the_later_job_replaces_the_waiting_one(app: StagedApp, desk: Desk, /) -> None:
    jobs = [await desk.task.asend("a", number) for number in range(3)]

    async with working(app):
        await _pass(app, 1)
        assert desk.runs == ["a 2"]
        for job in jobs[:2]:
            with pytest.raises(JobCancelled, match="replaced by job"):
                await job.aresult(timeout=1)
        assert await jobs[2].aresult(timeout=1) == 2


@run_by(_play, unique_policy="debounce", delay="10s")
async def test_debounced_calls_run_once_after_the_last_of_them(app: StagedApp, desk: Desk, /) -> None:
    async with working(app):
        for number in range(4):
            await desk.task.asend("a", number)
            await _pass(app, 5)
        assert desk.runs == []
        await _pass(app, 6)

    assert desk.runs == ["a 3"]


@run_by(_play, unique_policy="throttle", unique_ttl="1m")
async def test_throttled_calls_run_once_per_period_whatever_happens_to_the_first(
    app: StagedApp, desk: Desk, /
) -> None:
    async with working(app):
        first = await desk.task.asend("a", 1)
        await _pass(app, 1)
        assert (await desk.task.asend("a", 2)).id == first.id
        await _pass(app, 60)
        assert (await desk.task.asend("a", 3)).id != first.id
        await _pass(app, 1)

    assert desk.runs == ["a 1", "a 3"]


# Uniqueness until the end


@run_by(_play, unique_for="running")
async def test_a_key_may_stay_taken_until_its_job_has_ended_after_all_attempts(app: StagedApp, desk: Desk, /) -> None:
    desk.failures = 1
    desk.open.clear()
    job = await desk.task.asend("a", 1)
    async with working(app):
        await settle_loop()
        with pytest.raises(DuplicateJob):
            await desk.task.asend("a", 2)
        desk.open.set()
        await settle_loop()
        with pytest.raises(DuplicateJob, match=job.id):
            await desk.task.asend("a", 3)
        await _pass(app, 30)
        assert desk.runs == ["a 1", "a 1"]
        await desk.task.asend("a", 4)
        await settle_loop()

    assert desk.runs == ["a 1", "a 1", "a 4"]


@run_by(_play, unique_for="running", unique_policy="replace")
async def test_only_a_waiting_job_is_replaced_and_not_a_running_or_retrying_one(
    app: StagedApp, desk: Desk, /
) -> None:
    desk.failures = 1
    desk.open.clear()
    first = await desk.task.asend("a", 1)
    async with working(app):
        await settle_loop()
        with pytest.raises(DuplicateJob, match=first.id):
            await desk.task.asend("a", 2)
        desk.open.set()
        await settle_loop()
        await desk.task.asend("a", 3)
        await _pass(app, 30)

    assert desk.runs == ["a 1", "a 3"]
    assert await _is_free(app, "a")


@pytest.mark.parametrize("end", ["dead", "cancelled", "expired", "crashed"])
@pytest.mark.parametrize("until", ["waiting", "running"])
def test_the_key_is_free_after_any_end_of_the_job(end: str, until: str) -> None:
    async def test(app: StagedApp, desk: Desk) -> None:
        options: dict[str, Any] = {"expires": "1s"} if end == "expired" else {}
        job = await desk.task.options(**options).asend("a", 1)
        if end == "dead":
            desk.failures = 1
        elif end == "cancelled":
            assert await job.acancel()
        elif end == "expired":
            app.fake_clock.advance(2)
        else:
            # A worker ran it and was killed.
            claims = _state(app).claims
            held = await claims.claim("unique:sync:a", job_id="x", owner="x", lease=1, ttl=1)
            await claims.claim(
                "unique:sync:a",
                job_id=job.id,
                owner="running",
                lease=9e4,
                ttl=1,
                over=getattr(held, "token", 0),
            )
        async with working(app):
            await settle_loop()
            assert await _is_free(app, "a") is (end != "crashed" or until == "running")

    _play(test, unique_for=until, retry=None)


@run_by(_play, unique_for="running", unique_ttl="10s")
async def test_a_job_whose_key_was_taken_in_the_meantime_runs_after_the_other_job(
    app: StagedApp, desk: Desk, /
) -> None:
    await desk.task.asend("a", 1)
    app.fake_clock.advance(11)
    desk.open.clear()
    other = await _state(app).claims.claim("unique:sync:a", job_id="other", owner="running", lease=5, ttl=9)
    assert hasattr(other, "token")
    async with working(app):
        await _pass(app, 4)
        assert desk.runs == []
        await _pass(app, 4)
        assert desk.runs == ["a 1"]


@pytest.mark.real_time
async def test_cancelling_a_job_in_the_state_frees_its_key_at_once() -> None:
    app = TaskMQ(new_url(), delay="state")

    @app.task(unique="shop", delay="1h")
    async def sync(shop: str) -> None: ...

    async with app:
        first = await sync.asend("a")
        with pytest.raises(DuplicateJob):
            await sync.asend("a")
        await first.acancel()
        assert (await sync.asend("a")).id != first.id


@pytest.mark.real_time
async def test_replacing_a_job_that_waits_in_the_state_removes_it_at_once() -> None:
    app = TaskMQ(new_url(), delay="state")

    @app.task(unique="shop", unique_policy="debounce", delay="1h")
    async def sync(shop: str) -> None: ...

    async with app:
        first, second = await sync.asend("a"), await sync.asend("a")
        assert [job.id for job in await app.jobs.alist_waiting()] == [second.id]
        with pytest.raises(JobCancelled, match=f"replaced by job {second.id}"):
            await first.aresult(timeout=5)


@run_by(_play)
async def test_a_failed_publish_frees_the_key_and_an_unknown_one_after_a_short_time(
    app: StagedApp, desk: Desk, /
) -> None:
    await app.sessions.current().declare([app.producer.queue("work")])
    app.points.rest = Fault.REFUSED
    with pytest.raises(BrokerUnavailable):
        await desk.task.asend("a", 1)
    assert await _is_free(app, "a")

    app.points.rest = Fault.UNKNOWN
    with pytest.raises(PublishUnknown):
        await desk.task.options(job_id="mine").asend("a", 2)
    app.points.rest = Fault.NONE
    with pytest.raises(DuplicateJob, match="mine"):
        await desk.task.asend("a", 3)
    assert (await desk.task.options(job_id="mine").asend("a", 2)).id == "mine"

    app.points.rest = Fault.UNKNOWN
    with pytest.raises(PublishUnknown):
        await desk.task.asend("b", 2)
    app.fake_clock.advance(16)
    assert await _is_free(app, "b")


@run_by(_play)
async def test_a_producer_that_dies_before_publishing_blocks_the_key_only_briefly(
    app: StagedApp, desk: Desk, /
) -> None:
    await app.sessions.current().declare([app.producer.queue("work")])
    app.points.rest = Fault.HANGS
    sending = asyncio.create_task(desk.task.asend("a", 1))
    await settle_loop()
    sending.cancel()
    await asyncio.wait((sending,))
    app.points.rest = Fault.NONE
    with pytest.raises(DuplicateJob):
        await desk.task.asend("a", 2)

    await _pass(app, 16)
    await desk.task.asend("a", 3)


@run_by(_play, unique_policy="existing")
async def test_a_batch_may_come_from_an_async_iterable(app: StagedApp, desk: Desk, /) -> None:
    async def calls() -> AsyncIterator[tuple[str, int]]:
        for number in range(1100):
            yield f"{number % 600}", number

    jobs = await desk.task.asend_many(calls())

    assert len(jobs) == 1100
    assert len({job.id for job in jobs}) == (await app.stats("work")).ready == 600


@run_by(_play)
async def test_a_job_is_sent_even_if_its_key_could_not_be_confirmed(app: StagedApp, desk: Desk, /) -> None:
    state = app.sessions.current().state
    assert state is not None

    async def fails(*_: object, **__: object) -> object:
        raise StateUnavailable("no state (staged)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(state.claims), "renew", fails)
        await desk.task.asend("a", 1)
    assert (await app.stats("work")).ready == 1


@pytest.mark.parametrize("how", ["many", "stream"])
@run_by(_play)
async def test_one_job_of_a_batch_is_sent_and_the_others_are_refused(app: StagedApp, desk: Desk, /, how: str) -> None:
    calls = [("a", 1), ("b", 2), ("a", 3)]
    with pytest.raises(PartlySent) as caught:
        await _send_calls(desk.task, calls, how)

    assert list(caught.value.failures) == [2]
    assert isinstance(caught.value.failures[2], DuplicateJob)
    assert (await app.stats("work")).ready == 2


def test_synchronous_code_behaves_the_same() -> None:
    app = TaskMQ(new_url())

    @app.task(unique=True, unique_policy="existing")
    def sync(shop: str, n: int = 0) -> None: ...

    with app:
        first = sync.send("a")
        assert sync.send(shop="a", n=0).id == first.id
        assert [job.id for job in sync.send_many([("a",), ("a", 0)])] == [first.id] * 2
        assert [job.id for job in sync.send_stream([("a",)])] == [first.id]
        assert sync.send("a", 1).id != first.id


@run_by(_play)
async def test_nothing_is_sent_while_the_state_is_down(app: StagedApp, desk: Desk, /) -> None:
    await app.sessions.current().declare([app.producer.queue("work")])

    async def fails(*_: object, **__: object) -> object:
        raise StateUnavailable("no state (staged)")

    state = app.sessions.current().state
    assert state is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(state.claims), "claim", fails)
        with pytest.raises(BrokerUnavailable, match="needs the state"):
            await desk.task.asend("a", 1)
    assert (await app.stats("work")).ready == 0


@run_by(_play)
async def test_arguments_without_a_valid_key_are_refused(app: StagedApp, desk: Desk, /) -> None:
    with pytest.raises(InvalidArguments, match="unique"):
        await desk.task.asend("")


def test_uniqueness_without_a_state_is_refused_by_name() -> None:
    app = TaskMQ("amqp://nowhere.invalid")

    @app.task(name="sync", unique="shop")
    async def sync(shop: str) -> None: ...

    with pytest.raises(UnsupportedFeature, match=r"unique needs a state.*sync"):
        Worker(app, WorkerConfig())
    with pytest.raises(UnsupportedFeature, match=r"sync: unique needs a state"):
        asyncio.run(_send(sync))


async def _send(task: Any) -> None:
    await task.asend("a")
