"""Supervision of jobs in flight."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.contracts.broker import QueueStats
from taskmq.contracts.jobs import AppliedReport, JobUpdate
from taskmq.durable.service import ServiceGroup
from taskmq.model.commands import Command, decode_command
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.model.topology import jobs_queue
from taskmq.scheduler.duties import Duties
from taskmq.scheduler.lost_jobs import LOST_AFTER
from taskmq.scheduler.signals import LiveWorkers
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Process, Stage, play_one, until, worker_event


def _define(app: TaskMQ) -> None:
    @app.task(name="once", ack="early")
    async def once() -> None: ...


async def _commands(stage: Stage) -> list[Command]:
    """Record the commands to workers from now on."""
    told: list[Command] = []
    await stage.broker.listen(["worker.command.*"], lambda _, body: told.append(decode_command(body)))
    return told


@run_by(play_one)
async def test_the_cancel_of_a_dispatched_job_is_sent_every_five_seconds_until_its_report(stage: Stage, /) -> None:
    stage.start()
    told = await _commands(stage)
    (job_id,) = await stage.submit(key="17")
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    job = stage.job(job_id)
    request = JobUpdate(
        id=job_id,
        before=job.state,
        version=job.version,
        after=job.state,
        cancel_requested="no need",
        kind="cancel_requested",
    )
    assert await stage.store.update(request) is not None

    await stage.pass_by(16)
    asked = [(command.name, command.job_id, command.reason) for command in told if command.name != "tasks"]
    assert asked == [("revoke", "17", "no need")] * 3
    await player.finish("cancelled")
    await stage.all_ended()
    told.clear()
    await stage.pass_by(20)

    assert told == []
    assert stage.job(job_id).state is JobState.CANCELLED


@run_by(play_one)
async def test_a_job_with_a_pending_cancel_ends_instead_of_being_retried(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    job = stage.job(job_id)
    request = JobUpdate(
        id=job_id, before=job.state, version=job.version, after=job.state, cancel_requested="x", kind="cancel"
    )
    assert await stage.store.update(request) is not None

    await player.finish("retry", delay=50)

    await stage.all_ended()
    assert stage.job(job_id).state is JobState.CANCELLED


@run_by(play_one)
async def test_a_job_without_a_message_is_dispatched_again_after_five_minutes(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    await stage.broker.declare([])
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)
    token = stage.job(job_id).token
    await stage.pass_by(1)
    await stage.broker.purge(jobs_queue("work"))

    await stage.pass_by(290)
    assert stage.job(job_id).token == token
    await until(lambda: stage.job(job_id).token != token)

    assert stage.job(job_id).attempt == 1
    assert process.scheduler.status().lost == 1
    await stage.playing()
    await stage.all_ended()
    assert process.scheduler.status().in_flight == {}


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::test_a_job_without_a_message_is_dispatched_again_after_five_minutes"
)
@run_by(play_one)
async def test_a_job_without_a_message_is_found_while_reports_keep_coming(stage: Stage, /) -> None:
    process, job_id = await _start_busy(stage)
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)
    token = stage.job(job_id).token
    await stage.pass_by(1)
    await stage.broker.purge(jobs_queue("work"))

    await until(lambda: stage.job(job_id).token != token, within=LOST_AFTER + 60)

    assert process.scheduler.status().lost == 1


@run_by(play_one)
async def test_a_dead_worker_is_found_while_reports_keep_coming(stage: Stage, /) -> None:
    process, _ = await _start_busy(stage)
    player = await stage.player()
    await player.has(1)
    (delivery,), (envelope,) = player.deliveries, player.envelopes
    player.deliveries.clear()
    stage.worker_says(name="killed")
    await player.report(envelope, "detached", worker="killed")
    delivery.ack()

    await player.has(1, within=90)

    assert process.scheduler.status().lost == 1


async def _start_busy(stage: Stage) -> tuple[Process, str]:
    """Submit a job to a scheduler that always has reports to apply, each for a quarter of a second."""
    store = stage.store
    apply = store.dispatching.apply

    async def apply_slowly(reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        await stage.pass_by(0.25)
        return await apply(reports, came_by=came_by)

    store.dispatching.apply = apply_slowly  # type: ignore[method-assign]
    process = stage.start(store=store)
    await stage.submit(queue="other")
    other = await stage.player("other")
    await other.has(1)
    (envelope,) = other.envelopes

    async def report_all_the_time() -> None:
        while True:
            await other.report(envelope, "started")
            stage.worker_says()
            await stage.pass_by(0.1)

    stage.tasks.append(asyncio.create_task(report_all_the_time()))
    (job_id,) = await stage.submit()
    return process, job_id


@run_by(play_one)
async def test_a_job_that_waits_in_its_queue_or_with_a_worker_is_never_lost(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)
    await stage.pass_by(400)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await stage.pass_by(400)

    assert process.scheduler.status().lost == 0
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).token >> 32 == 1


@run_by(play_one)
async def test_a_job_whose_worker_is_gone_keeps_its_token_and_knows_how_many_died(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    for death in range(1, 4):
        await until(lambda: len(player.deliveries) == 1)
        (delivery,), (envelope,) = player.deliveries, player.envelopes
        assert envelope.store is not None
        assert (envelope.attempt, envelope.store.crashes) == (1, death - 1 or None)
        assert envelope.store.token == stage.job(job_id).token
        # A long run: it is settled before it ends, and its worker sends heartbeats.
        await player.report(envelope, "started")
        delivery.ack()
        player.deliveries.clear()
        for _ in range(8):
            stage.worker_says()
            await stage.pass_by(10)
        assert stage.job(job_id).state is JobState.RUNNING
        assert process.scheduler.status().lost == death - 1
        await until(lambda death=death: process.scheduler.status().lost == death, within=120)  # type: ignore[misc]

    await until(lambda: len(player.deliveries) == 1)
    (envelope,) = player.envelopes
    assert envelope.store is not None
    assert envelope.store.crashes == 3
    events = [(event.kind, event.by, event.note) for event in await stage.store.events(job_id)]
    assert events == [("interrupted", "player", "worker player died; the job runs again")] * 3
    assert await stage.store.attempts(job_id) == []


@run_by(play_one)
async def test_killed_workers_are_forgotten_after_a_while(stage: Stage, /) -> None:
    workers = LiveWorkers()

    for number in range(100):
        workers.hear(worker_event(name=f"w{number}"))
        await stage.pass_by(10)

    assert len(workers) == 60
    assert workers.count_of("work") == 3


@run_by(play_one)
async def test_the_slots_of_a_paused_worker_do_not_count_until_it_is_resumed(stage: Stage, /) -> None:
    workers = LiveWorkers()
    workers.start_hearing()

    counts = []
    for state in ("running", "paused", "running"):
        workers.hear(worker_event(state=state))
        counts.append((workers.count_of("work"), workers.slots_of("work")))

    assert counts == [(1, 1), (0, None), (1, 1)]


@run_by(play_one)
async def test_a_draining_worker_takes_no_jobs_and_remains_until_it_has_ended(stage: Stage, /) -> None:
    workers = LiveWorkers()
    workers.start_hearing()
    workers.hear(worker_event("online"))
    assert (workers.count_of("work"), workers.slots_of("work")) == (1, 1)

    # It reports at once, and with each heartbeat until its runs have ended.
    for event in ("draining", "beat", "beat"):
        workers.hear(worker_event(event, state="draining", in_hand={"work": 1}))

        assert (workers.count_of("work"), workers.slots_of("work"), workers.queues()) == (0, None, set())
        assert workers.have_in_hand("work")
        await stage.pass_by(4)
        workers.start_hearing()
        assert not workers.is_absent("player", seconds=5)

    workers.hear(worker_event("offline", state="draining"))
    assert not workers.have_in_hand("work")
    assert workers.is_absent("player", seconds=6)


@run_by(play_one)
async def test_a_detached_job_belongs_to_its_worker_until_a_minute_after_its_last_word(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    (delivery,), (envelope,) = player.deliveries, player.envelopes
    await player.report(envelope, "detached")
    delivery.ack()
    player.deliveries.clear()
    # The queue is never empty, and the worker sends no events.
    await stage.submit()
    await until(lambda: len(player.deliveries) == 1)

    for _ in range(20):
        await player.report(envelope, "alive")
        await stage.pass_by(10)
    assert process.scheduler.status().lost == 0
    assert stage.job(job_id).version == 3
    await stage.pass_by(45)
    assert stage.job(job_id).state is JobState.RUNNING
    await until(lambda: process.scheduler.status().lost == 1, within=50)

    await until(lambda: len(player.deliveries) == 2, within=600)
    assert player.envelopes[1].store is not None
    assert (player.envelopes[1].attempt, player.envelopes[1].store.crashes) == (1, 1)
    assert stage.job(job_id).state is JobState.DISPATCHED
    # The run that completes first counts, whichever it is.
    await player.report(envelope, "succeeded")
    await until(lambda: stage.job(job_id).state is JobState.SUCCEEDED)


@run_by(play_one)
async def test_waiting_reports_are_read_before_a_detached_job_is_given_up(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.report(player.envelopes[0], "detached")
    player.deliveries[0].ack()
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)

    # A store that is down for longer than a minute: reports of workers wait in the queue.
    process.store.is_reachable = False
    for _ in range(12):
        await player.report(player.envelopes[0], "started")
        await player.report(player.envelopes[0], "alive")
        await stage.pass_by(10)
    process.store.is_reachable = True
    await stage.pass_by(40)

    assert stage.job(job_id).state is JobState.RUNNING
    assert stage.job(job_id).token >> 32 == 1
    await player.report(player.envelopes[0], "succeeded")
    await stage.all_ended()


@run_by(play_one)
async def test_the_next_holder_of_a_partition_knows_which_jobs_have_no_message(stage: Stage, /) -> None:
    first = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.report(player.envelopes[0], "detached")
    player.deliveries[0].ack()
    player.deliveries.clear()
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)
    await stage.submit()
    await until(lambda: len(player.deliveries) == 1)

    await first.kill()
    second = stage.start()

    await until(lambda: second.scheduler.status().lost == 1, within=150)
    await until(lambda: any(envelope.id == job_id for envelope in player.envelopes))
    assert stage.job(job_id).attempt == 1


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::test_a_job_without_a_message_is_dispatched_again_after_five_minutes"
)
@run_by(play_one)
async def test_a_republished_job_is_not_missing(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    # The broker requeued the message before the worker was confirmed, and another worker has it.
    await player.report(player.envelopes[0], "detached", worker="slow")
    await player.report(player.envelopes[0], "started", worker="other")

    await stage.pass_by(300)

    assert process.scheduler.status().lost == 0
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).attempt == 1


@pytest.mark.nightly("tests/unit/scheduler/test_in_flight.py::test_a_dead_worker_is_found_while_reports_keep_coming")
@run_by(play_one, _define)
async def test_a_restarted_worker_of_the_same_name_does_not_have_the_jobs_of_the_killed(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit(task="once")
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.report(player.envelopes[0], "started")
    player.deliveries[0].ack()
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)
    restarted = stage.clock.now_ms() + 1_000

    for _ in range(20):
        stage.worker_says("beat", started=restarted)
        await stage.pass_by(7)

    assert stage.job(job_id).state is JobState.FAILED


@run_by(play_one, _define)
async def test_a_lost_job_that_must_not_run_twice_fails(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit(task="once")
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.report(player.envelopes[0], "started")
    player.deliveries[0].ack()

    await stage.all_ended()

    job = stage.job(job_id)
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert "it is unknown whether it ran" in job.error.message
    assert job.token >> 32 == 1


@run_by(play_one, _define)
async def test_a_job_that_must_not_run_twice_fails_although_the_broker_counts_nothing(stage: Stage, /) -> None:
    broker = stage.start().broker
    count = broker.stats

    async def stats(queues: Sequence[str]) -> list[QueueStats]:
        return [replace(each, unsettled=None) for each in await count(queues)]

    async def count_unsettled() -> None: ...

    vars(broker).update(stats=stats, count_unsettled=count_unsettled)
    (job_id,) = await stage.submit(task="once")
    player = await stage.player()
    await until(lambda: len(player.deliveries) == 1)
    await player.report(player.envelopes[0], "started")
    player.deliveries[0].ack()

    await stage.all_ended()

    assert stage.job(job_id).state is JobState.FAILED


@run_by(play_one)
async def test_schedulers_together_run_store_upkeep_once_an_hour(stage: Stage, /) -> None:
    done: list[float] = []

    async def maintain(*, forgets: bool = True) -> None:
        assert forgets
        done.append(stage.clock.monotonic())

    async with ServiceGroup() as group:
        for name in "abc":
            store = stage.store
            vars(store.dispatching)["maintain"] = maintain
            await group.start(Duties(store, me=name), name)
        await stage.pass_by(3 * 3600 + 300)

    assert [round(at / 3600, 1) for at in done] == [0, 1, 2, 3]
