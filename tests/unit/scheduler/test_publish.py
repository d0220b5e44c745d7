"""Invitations that the broker refuses."""

from collections.abc import Iterable

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobDetail, partition_of
from taskmq.errors import PublishRejected, PublishUnknown, SendError, TooLarge, Unroutable, UnsupportedFeature
from taskmq.model.history.journals import SaveRequest
from taskmq.model.states import JobState
from taskmq.model.topology import WorkQueue
from taskmq.testing import Published
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play, until
from tests.unit.store_kit import StagedStore


@pytest.mark.parametrize("error", [Unroutable("work"), PublishRejected("queue 'work' is full")], ids=str)
@run_by(play)
async def test_a_refused_job_is_ready_again_and_its_queue_pauses_longer_each_time(
    stage: Stage, /, error: SendError
) -> None:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    process.broker.fail_publishes(5, error)
    (job_id,) = await stage.submit(announced=True)
    began = stage.clock.monotonic()
    await until(lambda: stage.job(job_id).token > 0 and stage.job(job_id).state is JobState.QUEUED)
    assert process.scheduler.status().paused == {"work": str(error)}
    assert process.scheduler.status().in_flight == {}

    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1, within=120)

    # 1, 2, 4, 8 and 16 seconds.
    assert 31 <= stage.clock.since(began) <= 33
    assert player.envelopes[0].attempt == 1
    assert stage.job(job_id).token >> 32 == 6
    notes = [entry.note for entry in await stage.store.events(job_id)]
    assert notes == [str(error)] * 5
    await player.finish()
    await stage.all_ended()
    assert process.scheduler.status().paused == {}


@run_by(play)
async def test_an_invitation_contains_the_submission_time_of_its_job(stage: Stage, /) -> None:
    process = stage.start()
    submitted = stage.clock.now_ms()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)

    sent = [entry.message for entry in process.broker.journal if isinstance(entry, Published)]

    assert [(each.job_id, each.enqueued) for each in sent if each.queue == "work.jobs"] == [(job_id, submitted)]
    await player.finish()


@run_by(play)
async def test_the_headers_of_an_invitation_contain_the_owner_of_its_job(stage: Stage, /) -> None:
    process = stage.start()
    (owned,) = await stage.submit(tenant="north", detail=JobDetail(owner="ann"))
    (unowned,) = await stage.submit(detail=JobDetail(description="nightly"))
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 2)

    sent = {entry.message.job_id: entry.message for entry in process.broker.journal if isinstance(entry, Published)}

    assert sent[owned].headers == {"x-taskmq-tenant": "north", "x-taskmq-owner": "ann"}
    assert sent[unowned].headers == {}
    await player.finish()


@run_by(play)
async def test_a_queue_that_refuses_messages_delays_no_other(stage: Stage, /) -> None:
    process = stage.start()
    await stage.playing("good")
    await until(lambda: stage.holds_all(process))
    process.broker.fail_publishes(1, PublishRejected("queue 'bad' is full"))
    (bad,) = await stage.submit(queue="bad", announced=True)
    await until(lambda: "bad" in process.scheduler.status().paused)

    began = stage.clock.monotonic()
    good = await stage.submit(3, queue="good", announced=True)
    await until(lambda: all(stage.job(job_id).state.is_final for job_id in good))

    assert stage.clock.since(began) < 0.9
    assert stage.job(bad).state is JobState.QUEUED


@run_by(play)
async def test_an_oversized_job_fails_and_its_neighbours_run(stage: Stage, /) -> None:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    process.broker.fail_publishes(1, TooLarge(9, 8, "the message"))
    await stage.submit(3)
    await stage.playing()

    await stage.all_ended()

    assert stage.states() == {JobState.FAILED: 1, JobState.SUCCEEDED: 2}
    (failed,) = [job for job in stage.database.jobs.values() if job.state is JobState.FAILED]
    assert failed.error is not None
    assert "9 bytes" in failed.error.message
    await until(lambda: stage.batches() == 0)


@run_by(play)
async def test_a_job_with_a_lost_confirm_is_published_again_with_its_token_and_ends_once(stage: Stage, /) -> None:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    process.broker.lose_confirms(2, PublishUnknown("no confirm"))
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 3)

    assert len({each.store.token for each in player.envelopes if each.store}) == 1
    await player.finish()
    await until(lambda: sum(process.scheduler.status().reports.values()) == 3)

    assert process.scheduler.status().reports == {"accepted": 1, "superseded": 2}
    assert stage.job(job_id).state is JobState.SUCCEEDED


def test_a_job_that_must_not_run_twice_fails_if_its_confirm_is_lost() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="once", ack="early")
        async def once() -> None: ...

    async def test(stage: Stage) -> None:
        process = stage.start()
        await until(lambda: stage.holds_all(process))
        player = await stage.player_of_declared()
        process.broker.lose_confirms(1, PublishUnknown("no confirm"))
        (job_id,) = await stage.submit(task="once")

        await until(lambda: stage.job(job_id).state is JobState.FAILED)
        await stage.pass_by(30)

        assert len(player.deliveries) == 1
        assert "it is unknown whether it ran" in stage.job(job_id).error.message  # type: ignore[union-attr]
        assert process.scheduler.status().in_flight == {}

    play(test, define)


@run_by(play)
async def test_a_no_longer_valid_queue_name_stops_no_other_queue_of_its_partition(stage: Stage, /) -> None:
    process = stage.start()
    partition = partition_of("work")
    # Reserved in the meantime: an earlier version accepted the job.
    names = (f"taskmq.{number}" for number in range(100))
    old = next(name for name in names if partition_of(name) == partition)
    (kept,) = await stage.submit(queue=old)
    await until(lambda: process.scheduler.status().paused.keys() == {old})
    (other,) = await stage.submit()
    await stage.playing()

    await until(lambda: stage.job(other).state is JobState.SUCCEEDED)

    assert "not starting with" in process.scheduler.status().paused[old]
    assert stage.job(kept).state is JobState.QUEUED


@run_by(play)
async def test_an_undeclarable_queue_delays_nothing_else_of_its_batch(stage: Stage, /) -> None:
    partition = partition_of("work")
    odd = next(name for name in (f"odd{number}" for number in range(100)) if partition_of(name) == partition)
    process = stage.start()
    declare = process.broker.declare

    async def refuse(queues: Iterable[WorkQueue]) -> None:
        queues = list(queues)
        if odd in [queue.name for queue in queues]:
            raise UnsupportedFeature("this broker is too old (staged)")
        await declare(queues)

    vars(process.broker)["declare"] = refuse
    (kept,) = await stage.submit(queue=odd)
    (other,) = await stage.submit()
    await stage.playing()

    await until(lambda: stage.job(other).state is JobState.SUCCEEDED)
    await until(lambda: stage.job(kept).state is JobState.QUEUED)

    assert "too old" in process.scheduler.status().paused[odd]


@run_by(play)
async def test_all_retried_jobs_of_a_batch_are_published_with_what_they_saved(stage: Stage, /) -> None:
    process = stage.start()
    ids = await stage.submit(50)
    player = await stage.player()
    await player.has(50)

    async def is_saved(store: StagedStore) -> bool:
        saved = await store.journals.values(ids)
        return [each.version for each in saved.values()] == [1] * 50

    for envelope in player.envelopes:
        assert envelope.store is not None
        begin = SaveRequest(reply="worker.saved.w1", number=1, run=envelope.id)
        save = SaveRequest(reply="worker.saved.w1", number=2, run=envelope.id, fence=1, name="checkpoint")
        for saving in (begin, save):
            await player.report(envelope, "saving", saving=saving)
    await until(lambda: is_saved(process.store))
    await player.finish("interrupted")

    await player.has(50)

    assert sorted(each.id for each in player.envelopes) == sorted(ids)
    for envelope in player.envelopes:
        assert envelope.store is not None
        assert (envelope.store.saves, envelope.store.saved) == (1, {"checkpoint": msgspec.Raw(b"null")})
    await player.finish(has_saved=True)
    await stage.all_ended()
    assert await process.store.journals.values(ids) == {}
