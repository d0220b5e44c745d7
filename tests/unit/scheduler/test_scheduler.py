"""Schedulers from submit to history, on a store and a broker in this process."""

import asyncio
from dataclasses import replace

import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Lane
from taskmq.errors import StoreMismatch, StoreWentBack, UnsupportedFeature
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from tests.coroutines import run_by
from tests.unit.app_kit import new_url
from tests.unit.scheduler.stage import START, Player, Stage, play, play_one, until
from tests.unit.store_kit import Database, StagedStore


@run_by(play_one)
async def test_a_job_is_dispatched_run_and_ended_by_its_report(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    assert stage.job(job_id).state is JobState.DISPATCHED
    (envelope,) = player.envelopes
    assert envelope.store is not None
    assert (envelope.id, envelope.attempt, envelope.store.token) == (job_id, 1, stage.job(job_id).token)

    await player.finish(content_type="application/json", result=b"7")

    await until(lambda: stage.job(job_id).state is JobState.SUCCEEDED)
    assert stage.job(job_id).result == b"7"


@run_by(play_one)
async def test_an_announced_job_is_dispatched_at_once_and_any_other_within_half_a_second(stage: Stage, /) -> None:
    stage.start()
    player = await _warm(stage)

    began = stage.clock.monotonic()
    await stage.submit(announced=True)
    await until(lambda: len(player.deliveries) == 1)
    assert stage.clock.since(began) <= 0.01

    began = stage.clock.monotonic()
    await stage.submit()
    await until(lambda: len(player.deliveries) == 2)
    # A poll of half a second, and until the player has found the queue.
    assert stage.clock.since(began) <= 0.55


@run_by(play_one)
async def test_a_slow_first_poll_does_not_delay_later_work(stage: Stage, /, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatching = stage.start().store.dispatching
    lanes, looked = dispatching.lanes, set[int]()

    async def slow_first(partition: int) -> list[Lane]:
        if partition not in looked:
            await asyncio.sleep(0.7)
            looked.add(partition)
            return []
        return await lanes(partition)

    monkeypatch.setattr(dispatching, "lanes", slow_first)
    await until(lambda: len(looked) == dispatching.partitions)
    began = stage.clock.monotonic()
    await stage.submit()
    player = await stage.player()
    await player.has(1)
    # A poll of half a second, and until the player has found the queue.
    assert stage.clock.since(began) <= 0.55


@run_by(play_one)
async def test_an_accepted_result_is_in_the_state_under_its_public_id(stage: Stage, /) -> None:
    process = stage.start()
    await stage.submit(key="order 17", tenant="acme")
    (failed,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 2)
    for envelope in player.envelopes:
        await player.report(envelope, "failed" if envelope.id == failed else "succeeded", result=b"7")

    record = await process.app.jobs.wait_for_result("@acme:order 17", 5)
    other = await process.app.jobs.wait_for_result(failed, 5)

    assert record is not None
    assert (record.state, record.value, record.task) == (JobState.SUCCEEDED, b"7", "t")
    assert other is not None
    assert other.state is JobState.FAILED


def test_the_result_of_a_task_without_results_is_not_stored_in_the_state() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="quiet", result=False)
        async def quiet() -> None: ...

    async def test(stage: Stage) -> None:
        process = stage.start()
        (job_id,) = await stage.submit(task="quiet")
        await stage.playing()

        await stage.all_ended()

        state = process.app.sessions.current().state
        assert state is not None
        assert await state.results.get(job_id) is None

    play_one(test, define)


@run_by(play_one)
async def test_a_scheduler_without_a_state_is_complete(stage: Stage, /) -> None:
    stage.start(has_state=False)
    await stage.submit(3)
    await stage.playing()

    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: 3}


@run_by(play_one)
async def test_thousands_of_jobs_of_several_queues_all_end(stage: Stage, /) -> None:
    stage.start()
    for queue in ("one", "two", "three"):
        await stage.submit(700, queue=queue)
        await stage.playing(queue)

    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: 2100}
    await until(lambda: stage.batches() == 0)


@pytest.mark.nightly("tests/unit/scheduler/test_scheduler.py::test_thousands_of_jobs_of_several_queues_all_end")
@run_by(play_one)
async def test_thousands_of_jobs_that_fail_twice_all_succeed_at_their_third_attempt(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()

    async def work() -> None:
        while True:
            await player.has(1)
            taken, player.deliveries = player.deliveries, []
            for delivery in taken:
                envelope = decode_envelope(delivery.body)
                await player.report(envelope, "succeeded" if envelope.attempt == 3 else "retry", delay=1_000)
                delivery.ack()

    stage.tasks.append(asyncio.create_task(work()))
    ids = await stage.submit(2_000)
    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: len(ids)}
    assert {stage.job(job_id).attempt for job_id in ids} == {3}
    assert len(await stage.store.attempts(ids[0])) == 2


@run_by(play_one)
async def test_schedulers_of_two_databases_share_a_broker_and_its_workers(stage: Stage, /) -> None:
    other = replace(stage, database=Database(stage.clock, partitions=stage.database.partitions))
    stage.start()
    other.start(name="shop-2")
    ids = [await here.submit(300) for here in (stage, other)]

    await stage.playing()
    for here in (stage, other):
        await here.all_ended()

    for here, own in zip((stage, other), ids, strict=True):
        assert set(here.database.jobs) == set(own)
        assert here.states() == {JobState.SUCCEEDED: len(own)}
    assert await stage.parked_messages() == []


@run_by(play_one)
async def test_a_repeated_or_late_report_changes_nothing(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    (first,) = player.envelopes
    await player.finish("retry")
    await until(lambda: len(player.deliveries) == 1)
    (second,) = player.envelopes
    assert second.attempt == 2

    await player.report(first, "failed")
    await player.report(second, "succeeded", result=b"2")
    await player.report(second, "failed")

    await until(lambda: process.scheduler.status().reports == {"accepted": 2, "superseded": 2})
    assert (stage.job(job_id).state, stage.job(job_id).result) == (JobState.SUCCEEDED, b"2")
    record = await process.app.jobs.find_result(job_id)
    assert record is not None
    assert record.state is JobState.SUCCEEDED


# Windows and drains


@run_by(play_one)
async def test_the_broker_never_holds_more_jobs_than_the_window_allows(stage: Stage, /) -> None:
    process = stage.start()
    await stage.submit(300)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 64)
    await stage.pass_by(2)
    assert len(player.deliveries) == 64

    stage.worker_says(slots=5)
    await player.finish()
    await until(lambda: len(player.deliveries) >= 9)
    await stage.pass_by(2)

    # While jobs that ended at once count as a high rate, there is room for twice the slots.
    assert 9 <= len(player.deliveries) <= 10
    assert process.scheduler.status().in_flight == {"work": len(player.deliveries)}
    assert process.scheduler.status().windows == {"work": 9}


@run_by(play_one)
async def test_a_draining_scheduler_dispatches_nothing_and_waits_for_reports(stage: Stage, /) -> None:
    process = stage.start(drains=True)
    await stage.submit(100)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 64)

    process.scheduler.stop()
    await stage.pass_by(20)
    assert not process.task.done()
    assert process.scheduler.not_ready() == "stopping"
    await player.finish()
    await process.task

    assert stage.states() == {JobState.SUCCEEDED: 64, JobState.QUEUED: 36}
    assert stage.holders() == set()


@run_by(play_one)
async def test_a_second_signal_ends_a_drain(stage: Stage, /) -> None:
    process = stage.start(drains=True)
    await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)

    process.scheduler.stop()
    await stage.pass_by(1)
    process.scheduler.stop()
    await process.task

    assert stage.states() == {JobState.DISPATCHED: 1}
    assert stage.holders() == set()


# Start


async def test_an_app_without_a_store_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="store"):
        await Scheduler(TaskMQ(new_url())).run()


@run_by(play_one)
async def test_a_store_with_outdated_tables_is_refused_and_a_missing_one_is_waited_for(stage: Stage, /) -> None:
    class Behind(StagedStore):
        async def check(self) -> None:
            await super().check()
            raise StoreMismatch("the tables are behind: taskmq store upgrade")

    store = Behind(stage.database, clock=stage.clock)
    store.is_reachable = False
    process = stage.start(store=store)
    await stage.pass_by(10)
    assert not process.task.done()
    assert process.scheduler.not_ready() == "the store has not answered yet"

    store.is_reachable = True

    with pytest.raises(StoreMismatch):
        await process.task
    stage.processes.clear()


@run_by(play)
async def test_a_rolled_back_store_is_refused_and_nothing_is_dispatched_there(stage: Stage, /) -> None:
    await stage.player_of_declared()
    process, other = stage.start(), stage.start()
    await until(lambda: len(stage.holders()) == 2)
    await stage.pass_by(5)
    older = stage.database.ask("SELECT * FROM lease")
    await stage.pass_by(3)

    stage.database.ask("DELETE FROM lease")
    for row in older:
        stage.database.ask(f"INSERT INTO lease VALUES ({', '.join('?' * len(row))})", *row)
    (job,) = await stage.submit(due=stage.clock.now_ms() + 2_000)

    for refusing in (process, other):
        with pytest.raises(StoreWentBack, match="lost transactions: it has"):
            await refusing.task
    await stage.pass_by(10)
    assert stage.job(job).state is JobState.SCHEDULED
    # A process started after that is not told and accepts the store.
    stage.processes.clear()
    stage.start()
    await until(lambda: stage.job(job).state is JobState.DISPATCHED)


@run_by(play)
async def test_a_scheduler_reports_its_health(stage: Stage, /) -> None:
    process = stage.start()
    await stage.submit(2)
    await stage.submit(due=START + 3_000)
    await stage.playing()
    await stage.all_ended()

    status = process.scheduler.status()
    snapshot = process.scheduler.snapshot()

    assert process.scheduler.not_ready() is None
    assert (status.partitions, status.of, status.app) == (list(range(8)), 8, "shop")
    assert (status.dispatched, status.fired, status.reports, status.lost) == (3, 1, {"accepted": 3}, 0)
    assert (snapshot.partitions, snapshot.dispatched, snapshot.reports) == (8, 3, {"accepted": 3})

    process.store.is_reachable = False
    await stage.pass_by(10)
    assert str(process.scheduler.not_ready()).startswith("the store has not answered for")
    assert process.scheduler.status().partitions == []


async def _warm(stage: Stage) -> Player:
    """Start a worker of the queue after one job has passed through it."""
    await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.finish()
    await stage.all_ended()
    return player
