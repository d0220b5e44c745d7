"""Schedulers that start, stop, die and are cut off from the store."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import AppliedReport, DispatchBatch, DispatchedJob, Pick, Withdrawn, partition_of
from taskmq.errors import BrokerUnavailable, StoreUnavailable
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.scheduler.partitions import LEASE
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play, until


@run_by(play)
async def test_two_schedulers_hold_half_each_and_a_stopping_one_returns_its_half(stage: Stage, /) -> None:
    first = stage.start()
    await until(lambda: stage.holds_all(first))
    second = stage.start()
    await until(lambda: len(second.scheduler.status().partitions) == 4)
    assert len(first.scheduler.status().partitions) == 4

    began = stage.clock.monotonic()
    await first.stop()
    await until(lambda: stage.holds_all(second))

    # No scheduler waits for a lease to end.
    assert stage.clock.since(began) < 1


@run_by(play)
async def test_five_schedulers_share_eight_partitions_and_take_over_those_of_dead_ones(stage: Stage, /) -> None:
    processes = [stage.start() for _ in range(5)]

    def sizes() -> list[int]:
        return sorted(len(process.scheduler.status().partitions) for process in processes)

    await until(lambda: sizes() == [1, 1, 2, 2, 2])
    for process in processes[:3]:
        await process.kill()
    del processes[:3]
    await until(lambda: sizes() == [4, 4], within=2 * LEASE + 2)


@run_by(play)
async def test_a_take_over_with_a_lost_answer_is_repeated_and_no_job_is_forgotten(stage: Stage, /) -> None:
    first = stage.start()
    first.broker.hang_publishes()
    (job_id,) = await stage.submit()
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)
    await first.kill()
    store, lost = stage.store, list[int]()
    take_over = store.dispatching.take_over

    async def answer_lost(partition: int, epoch: int) -> list[DispatchBatch]:
        found = await take_over(partition, epoch)
        if found and not lost:
            lost.append(partition)
            raise StoreUnavailable("no answer (staged)", is_certain=False)
        return found

    vars(store.dispatching)["take_over"] = answer_lost
    stage.start(store=store)
    await stage.playing()

    await stage.all_ended()

    assert lost == [partition_of("work")]
    assert stage.job(job_id).token >> 32 == 1


@run_by(play)
async def test_a_lost_answer_of_a_dispatch_repeats_the_take_over_and_no_job_waits(stage: Stage, /) -> None:
    store, lost = stage.store, list[str]()
    dispatch = store.dispatching.dispatch

    async def answer_lost(partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        batch = await dispatch(partition, epoch, picks)
        if batch is not None and not lost:
            lost.extend(job.id for job in batch.jobs)
            raise StoreUnavailable("no answer (staged)", is_certain=False)
        return batch

    vars(store.dispatching)["dispatch"] = answer_lost
    stage.start(store=store)
    job_ids = await stage.submit(3)
    await stage.playing()

    await stage.all_ended()

    assert sorted(lost) == sorted(job_ids)
    assert {stage.job(job_id).token >> 32 for job_id in job_ids} == {1}


@run_by(play)
async def test_a_failed_dispatch_repeats_the_take_over_and_no_job_waits(stage: Stage, /) -> None:
    store, failed = stage.store, list[str]()
    dispatch = store.dispatching.dispatch

    async def fails_once(partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        batch = await dispatch(partition, epoch, picks)
        if batch is not None and not failed:
            failed.extend(job.id for job in batch.jobs)
            raise KeyError("a bug (staged)")
        return batch

    vars(store.dispatching)["dispatch"] = fails_once
    process = stage.start(store=store)
    dispatched = await stage.submit(3)
    await until(lambda: len(failed) == 3)
    # From here on a short outage of the broker is waited for as usual.
    process.broker.fail_publishes(3, BrokerUnavailable("no broker"))
    await stage.playing()

    await until(lambda: stage.states() == {JobState.SUCCEEDED: 3}, within=30)

    assert sorted(failed) == sorted(dispatched)


@run_by(play)
async def test_late_writes_of_an_earlier_holder_leave_room_for_others(stage: Stage, /) -> None:
    store, has_begun, goes_on = stage.store, asyncio.Event(), asyncio.Event()
    apply = stage.store.dispatching.apply

    async def apply_late(reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        has_begun.set()
        await goes_on.wait()
        return await apply(reports, came_by=came_by)

    vars(store.dispatching)["apply"] = apply_late
    first = stage.start(store=store)
    await stage.submit(100)
    player = await stage.player()
    await player.has(64)
    # The time until the store knows of the broker's confirm.
    await stage.pass_by(1)
    await player.finish()
    await has_begun.wait()
    second = stage.start()
    store.is_reachable = False
    await until(lambda: second.scheduler.status().in_flight == {"work": 64})

    goes_on.set()
    await player.has(36)
    await player.finish()
    await stage.all_ended()

    assert first.scheduler.status().reports == {"accepted": 64}
    await until(lambda: second.scheduler.status().in_flight == {})


@run_by(play)
async def test_a_scheduler_stops_when_its_leases_end_without_an_answer_of_the_store(stage: Stage, /) -> None:
    store, hangs = stage.store, asyncio.Event()

    def hanging(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def ask(*args: Any, **options: Any) -> Any:
            if hangs.is_set():
                # As long as a connection attempt lasts.
                await asyncio.sleep(60)
                raise StoreUnavailable("no answer (staged)", is_certain=False)
            return await call(*args, **options)

        return ask

    calls = {
        store: ["now_ms"],
        store.dispatching: ["apply", "confirm", "dispatch", "due", "forget", "in_flight", "lanes", "open_gates"],
        store.dispatching.leases: ["acquire", "find", "renew"],
        store.schedules: ["due"],
    }
    for part, names in calls.items():
        for name in names:
            vars(part)[name] = hanging(getattr(part, name))
    first = stage.start(store=store)
    await stage.submit(10)
    player = await stage.player()
    await player.has(10)
    await stage.pass_by(1)
    hangs.set()
    await player.finish()
    # In addition to the poll: it has the reports by now.
    await stage.pass_by(0.1)
    second = stage.start()
    began = stage.clock.monotonic()

    await stage.all_ended()

    assert stage.clock.since(began) <= LEASE + 5
    assert first.scheduler.status().partitions == []
    assert second.scheduler.status().partitions == list(range(8))


@run_by(play)
async def test_the_jobs_of_a_dead_scheduler_continue_within_the_lease_and_a_second(stage: Stage, /) -> None:
    first = stage.start()
    await stage.submit(10)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 10)
    stage.start()
    await stage.pass_by(2)
    await first.kill()
    began = stage.clock.monotonic()
    for envelope in player.envelopes:
        await player.report(envelope)

    await stage.all_ended()

    assert stage.clock.since(began) <= LEASE + 1
    assert stage.states() == {JobState.SUCCEEDED: 10}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(
            "by the first end",
            marks=pytest.mark.nightly(
                "tests/unit/scheduler/test_take_over.py::"
                "test_the_next_scheduler_charges_the_probable_cost_of_runs_of_the_dead_one"
            ),
        ),
        "as running",
    ],
)
@run_by(play)
async def test_the_next_scheduler_charges_the_probable_cost_of_runs_of_the_dead_one(
    stage: Stage, /, known: str
) -> None:
    first = stage.start()
    player = await stage.player_of_declared()
    await stage.submit(400, task="long", tenant="long")
    await stage.submit(500, task="short", tenant="short")
    await player.has(64)
    long = [each for each in player.deliveries if b'"long"' in each.body]
    assert len(long) == 32
    if known == "as running":
        for delivery in long:
            await player.report(decode_envelope(delivery.body), "started", started=stage.clock.now_ms())
        await until(lambda: stage.states().get(JobState.RUNNING) == 32)
    await stage.pass_by(30)
    await first.kill()
    second = stage.start()
    await until(lambda: second.scheduler.status().in_flight == {"work": 64})
    if known == "by the first end":
        await player.report(decode_envelope(long[0].body), ran=10_000)
        long.pop(0).ack()

    done = 0
    while done < 400:
        player.deliveries = [each for each in player.deliveries if b'"short"' in each.body]
        done += len(player.deliveries)
        # At a higher rate, the window would cover all jobs.
        await stage.pass_by(0.1)
        await player.finish(ran=100)
        await player.has(1)

    dispatched = [job for job in stage.database.jobs.values() if job.task == "long" and job.token]
    assert len(dispatched) == 32


def test_a_take_over_resumes_after_an_outage_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="once", ack="early")
        async def once() -> None: ...

    async def test(stage: Stage) -> None:
        first = stage.start()
        await until(lambda: stage.holds_all(first))
        first.broker.hang_publishes()
        (other,) = await stage.submit()
        await until(lambda: first.broker.hanging == 1)
        (once,) = await stage.submit(task="once")
        await until(lambda: first.broker.hanging == 2)
        await first.kill()
        store, lost = stage.store, list[str]()
        fail = store.dispatching.fail

        async def fails_once(partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str) -> Withdrawn:
            if not lost:
                lost.append(reason)
                raise StoreUnavailable("it is away (staged)")
            return await fail(partition, epoch, jobs, reason=reason)

        vars(store.dispatching)["fail"] = fails_once
        stage.start(store=store)
        player = await stage.player()
        await until(lambda: stage.job(once).state is JobState.FAILED)
        await player.has(1)
        await stage.pass_by(10)

        assert lost
        assert {envelope.store.id for envelope in player.envelopes if envelope.store} == {other}
        assert "the work for a partition failed" not in caplog.text

    play(test, define)


@run_by(play)
async def test_a_scheduler_cut_off_from_the_store_stops_and_takes_nothing_with_it(stage: Stage, /) -> None:
    first = stage.start()
    await stage.submit(5)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 5)
    second = stage.start()
    await stage.pass_by(3)

    first.store.is_reachable = False
    await stage.pass_by(LEASE + 2)
    assert first.scheduler.status().partitions == []
    assert second.scheduler.status().partitions == list(range(8))
    await player.finish()
    await stage.all_ended()

    first.store.is_reachable = True
    await until(lambda: len(first.scheduler.status().partitions) == 4)
    stage.plays(player)
    await stage.submit(50)
    await stage.all_ended()


@run_by(play)
async def test_an_unavailable_store_loses_no_report_and_no_job(stage: Stage, /) -> None:
    process = stage.start()
    await stage.submit(100)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 64)
    process.store.is_reachable = False
    taken = len(process.broker.journal)
    await player.finish()
    await stage.pass_by(60)

    # Reports stay in their queue: no scheduler consumes and returns them in a loop.
    requeued = process.broker.kinds()[taken:].count("Requeued")
    assert requeued <= 64
    assert not any(job.state.is_final for job in stage.database.jobs.values())
    process.store.is_reachable = True
    stage.plays(player)

    await stage.all_ended()
    assert stage.states() == {JobState.SUCCEEDED: 100}


@run_by(play)
async def test_an_unavailable_broker_leaves_jobs_in_the_store(stage: Stage, /) -> None:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    process.broker.fail_publishes(10_000, BrokerUnavailable("no broker"))
    await stage.submit(500)
    await stage.pass_by(10)
    assert stage.states()[JobState.DISPATCHED] == 64
    assert "the broker accepts no jobs" in str(process.scheduler.not_ready())
    tokens = {job.id: job.token for job in stage.database.jobs.values() if job.state is JobState.DISPATCHED}

    vars(process.broker)["_faults"].clear()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 64)

    assert {each.store.id: each.store.token for each in player.envelopes if each.store} == tokens
    stage.plays(player)
    await stage.all_ended()
