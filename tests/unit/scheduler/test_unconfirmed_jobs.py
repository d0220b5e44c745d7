"""Jobs that an earlier holder had published, with and without the broker's confirm in the store."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.contracts.broker import QueueStats
from taskmq.contracts.jobs import DispatchBatch, ReturnedJob
from taskmq.errors import StoreUnavailable
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until


def _define_once(app: TaskMQ) -> None:
    @app.task(name="once", ack="early")
    async def once() -> None: ...


@run_by(play_one)
async def test_an_unconfirmed_batch_is_published_again_with_the_same_tokens(stage: Stage, /) -> None:
    first = stage.start()
    await until(lambda: stage.holds_all(first))
    # Its publishes hang, and then it dies.
    first.broker.hang_publishes()
    (job_id,) = await stage.submit(announced=True)
    await until(lambda: first.broker.hanging == 1)
    await first.kill()
    token = stage.job(job_id).token
    assert stage.job(job_id).state is JobState.DISPATCHED

    stage.start()
    player = await stage.player()
    await until(lambda: len(player.deliveries) > 0)

    assert {envelope.store.token for envelope in player.envelopes if envelope.store} == {token}
    await player.finish()
    await stage.all_ended()
    await until(lambda: stage.batches() == 0)


@run_by(play_one)
async def test_jobs_whose_reports_wait_are_not_published_again(stage: Stage, /) -> None:
    store = stage.store
    vars(store.dispatching)["confirm"] = _never_confirms
    first = stage.start(store=store)
    ended, begun, unknown = await stage.submit(3)
    player = await stage.player()
    await player.has(3)
    await first.kill()
    envelopes = {each.store.id: each for each in player.envelopes if each.store}
    await player.report(envelopes[ended])
    await player.report(envelopes[begun], "started")
    player.deliveries.clear()

    stage.start()
    await player.has(1)
    await stage.pass_by(20)

    assert [each.store.id for each in player.envelopes if each.store] == [unknown]
    assert stage.job(ended).state is JobState.SUCCEEDED
    assert stage.job(begun).state is JobState.RUNNING
    await player.report(envelopes[begun])
    await player.finish()
    await stage.all_ended()


@run_by(play_one, _define_once)
async def test_jobs_that_run_at_most_once_and_whose_reports_wait_do_not_fail(stage: Stage, /) -> None:
    store = stage.store
    vars(store.dispatching)["confirm"] = _never_confirms
    first = stage.start(store=store)
    ended, begun, unknown = await stage.submit(3, task="once")
    player = await stage.player()
    await player.has(3)
    await first.kill()
    envelopes = {each.store.id: each for each in player.envelopes if each.store}
    await player.report(envelopes[ended])
    await player.report(envelopes[begun], "started")

    stage.start()
    await until(lambda: stage.job(unknown).state is JobState.FAILED)
    await stage.pass_by(20)

    assert len(player.deliveries) == 3
    assert stage.job(ended).state is JobState.SUCCEEDED
    assert stage.job(begun).state is JobState.RUNNING
    await player.report(envelopes[begun])
    await until(lambda: stage.job(begun).state is JobState.SUCCEEDED)


@run_by(play_one)
async def test_jobs_are_published_again_although_an_earlier_holder_keeps_reports(stage: Stage, /) -> None:
    store = stage.store
    vars(store.dispatching)["confirm"] = _never_confirms
    first = stage.start(store=store)
    (job,) = await stage.submit()
    player = await stage.player()
    await player.has(1)
    await first.kill()
    (envelope,) = player.envelopes
    assert envelope.store is not None
    process = stage.start()
    stats = process.broker.stats

    async def count_more(queues: Sequence[str]) -> list[QueueStats]:
        return [replace(each, ready=each.ready + 5) for each in await stats(queues)]

    vars(process.broker)["stats"] = count_more

    await player.has(2)
    await player.finish()

    await stage.all_ended()
    assert stage.job(job).state is JobState.SUCCEEDED


@run_by(play_one)
async def test_a_confirmed_batch_is_delivered_by_the_broker_and_counts_as_in_flight(stage: Stage, /) -> None:
    first = stage.start()
    await stage.submit(100)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 64)
    await stage.pass_by(1)
    await first.kill()

    second = stage.start()
    await stage.pass_by(20)

    assert len(player.deliveries) == 64
    assert second.scheduler.status().in_flight == {"work": 64}
    await player.finish()
    await until(lambda: len(player.deliveries) == 36)


@run_by(play_one, _define_once)
async def test_an_unconfirmed_job_that_must_not_run_twice_fails(stage: Stage, /) -> None:
    first = stage.start()
    await until(lambda: stage.holds_all(first))
    first.broker.hang_publishes()
    (once,) = await stage.submit(task="once")
    (other,) = await stage.submit()
    await until(lambda: first.broker.hanging == 2)
    await first.kill()

    stage.start()
    player = await stage.player()
    await until(lambda: len(player.deliveries) > 0)
    await player.finish()
    await stage.all_ended()

    assert stage.job(once).state is JobState.FAILED
    assert "it is unknown whether" in stage.job(once).error.message  # type: ignore[union-attr]
    assert stage.job(other).state is JobState.SUCCEEDED


@run_by(play_one, _define_once)
async def test_jobs_that_are_returned_while_a_scheduler_stops_are_published_once_more(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit(task="once")
    player = await stage.player()
    await player.has(1)
    # The time until the store knows of the broker's confirm.
    await stage.pass_by(1)
    dispatch_again, is_returned, goes_on = process.store.dispatching.dispatch_again, asyncio.Event(), asyncio.Event()

    async def answer_late(partition: int, epoch: int, jobs: Sequence[ReturnedJob]) -> DispatchBatch | None:
        batch = await dispatch_again(partition, epoch, jobs)
        is_returned.set()
        await goes_on.wait()
        process.broker.hang_publishes()
        return batch

    vars(process.store.dispatching)["dispatch_again"] = answer_late
    (envelope,) = player.envelopes
    player.deliveries.pop().ack()
    await player.report(envelope, "interrupted", redelivered=True, started=None)
    await is_returned.wait()
    stopping = asyncio.create_task(process.stop())
    await stage.pass_by(0.3)
    goes_on.set()
    await until(lambda: process.broker.hanging == 1)
    await stage.pass_by(0.3)
    process.broker.release_publishes()
    await stopping

    stage.start()
    await player.has(1)
    await stage.pass_by(20)

    assert len(player.deliveries) == 1
    await player.finish()
    await until(lambda: stage.job(job_id).state is JobState.SUCCEEDED)


async def _never_confirms(batches: Sequence[int]) -> None:
    raise StoreUnavailable("the confirm is not recorded (staged)")
