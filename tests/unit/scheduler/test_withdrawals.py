"""Jobs that a scheduler withdraws from the broker, or ends without a run, while a worker may already have them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, Withdrawn, partition_key
from taskmq.errors import (
    BrokerBlocked,
    BrokerUnavailable,
    PublishRejected,
    PublishUnknown,
    StoreUnavailable,
    Unroutable,
)
from taskmq.model.envelope import JSON
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq.model.topology import jobs_queue
from taskmq.scheduler.lost_jobs import LOST_AFTER
from taskmq.scheduler.partitions import LEASE
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Player, Process, Stage, play_one, until
from tests.unit.store_kit import StagedStore


def _define(app: TaskMQ) -> None:
    @app.task(name="once", ack="early")
    async def once() -> None: ...

    @app.task(name="alone", queue="work", concurrency=1)
    def alone() -> None: ...


async def _start_scheduler(stage: Stage, store: StagedStore | None = None) -> Process:
    process = stage.start(store=store)
    await until(lambda: stage.holds_all(process))
    return process


async def _start_counts(stage: Stage, job_id: str) -> None:
    """Apply a report of the start without telling the scheduler, as an earlier holder would."""
    job = stage.job(job_id)
    report = Report(id=job_id, token=job.token, attempt=1, kind="started", worker="player", started=START)
    (applied,) = await stage.store.dispatching.apply([report])
    assert applied.outcome == "accepted"


def _tokens(player: Player) -> list[int]:
    return [each.store.token for each in player.envelopes if each.store]


async def _count_undispatched(stage: Stage, job_id: str) -> int:
    return sum(event.kind == "undispatched" for event in await stage.store.events(job_id))


def _starts_before(stage: Stage, store: StagedStore, name: str) -> list[str]:
    """Let a worker start each job just before the scheduler calls this store method; return those jobs."""
    call: Callable[..., Coroutine[Any, Any, Withdrawn]] = getattr(store.dispatching, name)
    seen: list[str] = []

    async def call_late(partition: int, epoch: int, jobs: Sequence[DispatchedJob], **options: Any) -> Withdrawn:
        for job in jobs:
            await _start_counts(stage, job.id)
            seen.append(job.id)
        return await call(partition, epoch, jobs, **options)

    vars(store.dispatching)[name] = call_late
    return seen


@run_by(play_one)
async def test_a_running_job_is_not_published_again_and_not_withdrawn(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    process.broker.fail_publishes(1, Unroutable("work"))
    (job_id,) = await stage.submit(announced=True)
    await player.has(1)
    await player.report(player.envelopes[0], "started")

    await stage.pass_by(60)

    assert len(player.deliveries) == 1
    assert stage.job(job_id).state is JobState.RUNNING
    assert process.scheduler.status().in_flight == {"work": 1}
    assert process.scheduler.status().paused == {}
    await player.finish()
    await stage.all_ended()
    assert process.scheduler.status().reports == {"accepted": 2}


@run_by(play_one)
async def test_an_ended_job_is_not_published_again(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    await stage.submit(announced=True)
    await player.has(1)
    await player.finish()

    await stage.all_ended()
    await stage.pass_by(10)

    assert player.deliveries == []
    assert process.scheduler.status().reports == {"accepted": 1}
    await until(lambda: stage.batches() == 0)


@pytest.mark.parametrize("error", [Unroutable("work"), PublishRejected("queue 'work' is full")], ids=str)
@run_by(play_one)
async def test_a_job_that_a_worker_may_have_is_not_withdrawn_after_a_refusal(
    stage: Stage, /, error: Unroutable | PublishRejected
) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    process.broker.fail_publishes(3, error)
    (job_id,) = await stage.submit(announced=True)
    await player.has(1)
    await until(lambda: process.scheduler.status().paused == {"work": str(error)})
    # Other queues of the partition continue: the broker accepts their jobs.
    assert process.scheduler.not_ready() is None

    await player.has(2)
    await stage.pass_by(30)

    assert set(_tokens(player)) == {stage.job(job_id).token}
    assert await _count_undispatched(stage, job_id) == 0
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).token >> 32 == 1
    assert process.scheduler.status().in_flight == {}


@run_by(play_one, _define)
async def test_a_job_whose_start_only_the_store_knows_continues_and_keeps_its_permit(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    process.broker.fail_publishes(1, BrokerUnavailable("no broker"))
    process.broker.fail_publishes(1, Unroutable("work"))
    job_id, behind = await stage.submit(2, task="alone")
    await until(lambda: JobState.DISPATCHED in stage.states())
    job_id, behind = (one for one in sorted((job_id, behind), key=lambda one: stage.job(one).state.value))
    await _start_counts(stage, job_id)
    token = stage.job(job_id).token

    await stage.pass_by(60)

    assert player.deliveries == []
    assert (stage.job(job_id).state, stage.job(job_id).token) == (JobState.RUNNING, token)
    assert process.scheduler.status().in_flight == {"work": 1}
    assert stage.job(behind).state is JobState.QUEUED
    report = Report(id=job_id, token=token, attempt=1, kind="succeeded", worker="player")
    await player.send(f"taskmq.reports.shop.{stage.partition_of('work')}", report)
    await player.has(1)
    assert [each.store.id for each in player.envelopes if each.store] == [behind]
    await player.finish()
    await stage.all_ended()


@run_by(play_one, _define)
async def test_a_job_that_must_not_run_twice_continues_if_a_worker_has_started_it(stage: Stage, /) -> None:
    store = stage.store
    seen = _starts_before(stage, store, "fail")
    process = await _start_scheduler(stage, store)
    player = await stage.player_of_declared()
    process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    (job_id,) = await stage.submit(task="once", announced=True)
    await player.has(1)
    await stage.pass_by(30)

    assert seen == [job_id]
    assert stage.job(job_id).state is JobState.RUNNING
    assert process.scheduler.status().in_flight == {"work": 1}
    assert len(player.deliveries) == 1
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("task", ["t", "once"])
@run_by(play_one, _define)
async def test_the_next_holder_leaves_runs_to_their_worker_even_without_a_confirm(stage: Stage, /, task: str) -> None:
    first = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    if task == "t":
        first.broker.lose_confirms(1, PublishUnknown("no confirm"))
        first.broker.fail_publishes(10_000, BrokerUnavailable("no broker"))
    (job_id,) = await stage.submit(task=task, announced=True)
    await player.has(1)
    await _start_counts(stage, job_id)
    await first.kill()
    assert stage.database.ask("SELECT confirmed FROM dispatch_batch") == [(0,)]

    second = stage.start()
    await until(lambda: second.scheduler.status().in_flight == {"work": 1})
    await stage.pass_by(30)

    assert len(player.deliveries) == 1
    assert stage.job(job_id).state is JobState.RUNNING
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).state is JobState.SUCCEEDED
    await until(lambda: stage.batches() == 0)


@run_by(play_one)
async def test_jobs_possibly_published_by_an_earlier_holder_are_not_withdrawn(stage: Stage, /) -> None:
    first = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    first.broker.lose_confirms(1, PublishUnknown("no confirm"))
    (job_id,) = await stage.submit(announced=True)
    await player.has(1)
    await first.kill()

    second = stage.start()
    second.broker.fail_publishes(1, PublishRejected("queue 'work' is full"))
    await until(lambda: second.scheduler.status().paused.keys() == {"work"})
    await player.has(2)

    assert set(_tokens(player)) == {stage.job(job_id).token}
    assert await _count_undispatched(stage, job_id) == 0
    await player.finish()
    await stage.all_ended()


@run_by(play_one)
async def test_a_scheduler_that_wakes_up_late_withdraws_nothing_from_the_next_holder(stage: Stage, /) -> None:
    store, sent = stage.store, list[tuple[Any, ...]]()
    is_frozen = asyncio.Event()

    async def freeze(*args: Any, **options: Any) -> Withdrawn:
        sent.append((*args, options))
        is_frozen.set()
        return await asyncio.Future()

    vars(store.dispatching)["undispatch"] = freeze
    first = await _start_scheduler(stage, store)
    player = await stage.player_of_declared()
    first.broker.fail_publishes(1, Unroutable("work"))
    (job_id,) = await stage.submit(announced=True)
    await is_frozen.wait()
    stage.start()
    store.is_reachable = False
    await player.has(1, within=3 * LEASE)

    # Its writes are applied in the store now.
    ((partition, epoch, jobs, options),) = sent
    withdrawn = await stage.store.dispatching.undispatch(partition, epoch, jobs, **options)
    await stage.pass_by(10)

    assert withdrawn == Withdrawn(is_fenced=True)
    assert [job.id for job in jobs] == [job_id]
    assert stage.job(job_id).state is JobState.DISPATCHED
    assert len(player.deliveries) == 1
    await player.finish()
    await stage.all_ended()
    assert stage.job(job_id).token >> 32 == 1


@pytest.mark.parametrize("count", [1, 2], ids=["the whole batch is refused", "half of the batch is refused"])
@run_by(play_one)
async def test_the_next_holder_publishes_what_was_refused_to_one_without_a_lease(stage: Stage, /, count: int) -> None:
    old, new = stage.store, stage.store
    has_asked, is_acquired = asyncio.Event(), asyncio.Event()
    undispatch, take_over = old.dispatching.undispatch, new.dispatching.take_over
    renew = old.dispatching.leases.renew

    async def ask_late(*args: Any, **options: Any) -> Withdrawn:
        has_asked.set()
        await is_acquired.wait()
        return await undispatch(*args, **options)

    async def take_over_late(partition: int, epoch: int) -> list[DispatchBatch]:
        if partition == stage.partition_of("work"):
            is_acquired.set()
            # The earlier holder records its batches meanwhile.
            await stage.pass_by(1)
        return await take_over(partition, epoch)

    async def believe(key: str, **options: Any) -> bool:
        return key == partition_key(stage.partition_of("work")) or await renew(key, **options)

    vars(old.dispatching)["undispatch"] = ask_late
    vars(old.dispatching.leases)["renew"] = believe
    vars(new.dispatching)["take_over"] = take_over_late
    first = await _start_scheduler(stage, old)
    player = await stage.player_of_declared()
    first.broker.fail_publishes(1, Unroutable("work"))
    ids = await stage.submit(count, announced=True)
    await has_asked.wait()
    stage.start(store=new)

    await until(lambda: {each.id for each in player.envelopes} == {*ids}, within=3 * LEASE)

    await player.finish()
    await stage.all_ended()
    assert {stage.job(each).token >> 32 for each in ids} == {1}


@run_by(play_one)
async def test_a_run_without_a_worker_is_left_to_the_next_holder_of_the_partition(stage: Stage, /) -> None:
    store, fenced = stage.store, [None]
    dispatch_again = store.dispatching.dispatch_again

    async def fence_once(*args: Any) -> DispatchBatch | None:
        return fenced.pop() if fenced else await dispatch_again(*args)

    vars(store.dispatching)["dispatch_again"] = fence_once
    process = await _start_scheduler(stage, store)
    player = await stage.player_of_declared()
    (job_id,) = await stage.submit(announced=True)
    await player.has(1)
    await player.report(player.envelopes[0], "started")
    player.deliveries.pop().ack()
    for _ in range(8):
        stage.worker_says()
        await stage.pass_by(10)

    await until(lambda: not fenced, within=120)
    assert process.scheduler.status().lost == 0
    assert stage.job(job_id).state is JobState.RUNNING
    await player.has(1, within=120)

    # The watch asks again at its next check. Under another token, a run could go on beside the next one.
    assert stage.job(job_id).token >> 32 == 1
    await player.finish()
    await stage.all_ended()


@run_by(play_one)
async def test_a_lost_job_stays_in_flight_if_its_withdrawal_was_fenced(stage: Stage, /) -> None:
    store, fenced = stage.store, [Withdrawn(is_fenced=True)]
    undispatch = store.dispatching.undispatch

    async def fence_once(*args: Any, **options: Any) -> Withdrawn:
        return fenced.pop() if fenced else await undispatch(*args, **options)

    vars(store.dispatching)["undispatch"] = fence_once
    process = await _start_scheduler(stage, store)
    player = await stage.player_of_declared()
    (job_id,) = await stage.submit(announced=True)
    await player.has(1)
    player.deliveries.pop().ack()

    # The watch asks again at its next check.
    await player.has(1, within=2 * LOST_AFTER)

    assert not fenced
    assert process.scheduler.status().lost == 1
    assert stage.job(job_id).token >> 32 == 2
    await player.finish()
    await stage.all_ended()


@pytest.mark.parametrize(("task", "call"), [("t", "undispatch"), ("once", "fail")])
@run_by(play_one, _define)
async def test_a_refusal_unknown_to_the_store_is_left_to_the_next_holder(
    stage: Stage, /, task: str, call: str
) -> None:
    store, epochs, has_asked = stage.store, list[int](), asyncio.Event()
    withdraw: Callable[..., Coroutine[Any, Any, Withdrawn]] = getattr(store.dispatching, call)

    async def is_away(partition: int, epoch: int, jobs: Sequence[DispatchedJob], **options: Any) -> Withdrawn:
        epochs.append(epoch)
        has_asked.set()
        if epoch == epochs[0]:
            raise StoreUnavailable("it is away (staged)")
        return await withdraw(partition, epoch, jobs, **options)

    async def renew(*_: Any, **__: Any) -> bool:
        return not has_asked.is_set()

    vars(store.dispatching)[call] = is_away
    vars(store.dispatching.leases)["renew"] = renew
    process = await _start_scheduler(stage, store)
    player = await stage.player_of_declared()
    if task == "once":
        process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    else:
        process.broker.fail_publishes(1, Unroutable("work"))
    (job_id,) = await stage.submit(task=task, announced=True)
    await has_asked.wait()
    began = stage.clock.monotonic()

    if task == "t":
        await player.has(1)
        await player.finish()
    await stage.all_ended()

    assert stage.job(job_id).state is (JobState.SUCCEEDED if task == "t" else JobState.FAILED)
    assert stage.clock.since(began) < 3 * LEASE


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::test_a_job_that_waits_in_its_queue_or_with_a_worker_is_never_lost"
)
@run_by(play_one)
async def test_a_job_that_waits_for_a_blocked_broker_is_not_considered_lost(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    process.broker.fail_publishes(10_000, BrokerBlocked("short of memory"))
    (job_id,) = await stage.submit(announced=True)

    await stage.pass_by(600)
    assert process.scheduler.status().lost == 0
    token = stage.job(job_id).token
    vars(process.broker)["_faults"].clear()
    await player.has(1)
    await stage.pass_by(30)

    assert _tokens(player) == [token]
    await player.finish()
    await stage.all_ended()


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::test_a_job_without_a_message_is_dispatched_again_after_five_minutes"
)
@run_by(play_one)
async def test_a_job_that_the_broker_may_have_and_keeps_refusing_is_found_to_be_lost(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    await stage.broker.declare([])
    process.broker.lose_confirms(1, PublishUnknown("no confirm"))
    process.broker.fail_publishes(10_000, PublishRejected("queue 'work' is full"))
    (job_id,) = await stage.submit(announced=True)
    await until(lambda: process.scheduler.status().paused.keys() == {"work"})
    await stage.broker.purge(jobs_queue("work"))

    await stage.pass_by(290)
    assert stage.job(job_id).state is JobState.DISPATCHED
    await until(lambda: stage.job(job_id).state is JobState.QUEUED, within=120)

    assert process.scheduler.status().lost == 1
    assert process.scheduler.status().in_flight == {}
    vars(process.broker)["_faults"].clear()
    await stage.playing()
    await stage.all_ended()
    assert stage.job(job_id).attempt == 1


@pytest.mark.parametrize(
    ("task", "call"),
    [
        ("t", "undispatch"),
        pytest.param(
            "once",
            "fail",
            marks=pytest.mark.nightly(
                "tests/unit/scheduler/test_withdrawals.py::test_a_job_that_starts_as_it_is_given_up_continues"
            ),
        ),
    ],
)
@run_by(play_one, _define)
async def test_a_job_that_starts_as_it_is_given_up_continues(stage: Stage, /, task: str, call: str) -> None:
    store = stage.store
    process = await _start_scheduler(stage, store)
    (job_id,) = await stage.submit(task=task, announced=True)
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)
    await stage.pass_by(1)
    seen = _starts_before(stage, store, call)
    await stage.broker.purge(jobs_queue("work"))

    await until(lambda: seen == [job_id], within=400)
    stage.worker_says()
    await stage.pass_by(10)

    assert stage.job(job_id).state is JobState.RUNNING
    assert process.scheduler.status().in_flight == {"work": 1}


@run_by(play_one, _define)
async def test_a_take_over_that_fails_halfway_publishes_nothing_and_is_repeated(stage: Stage, /) -> None:
    first = await _start_scheduler(stage)
    first.broker.hang_publishes()
    (limited,) = await stage.submit(task="alone", announced=True)
    await until(lambda: first.broker.hanging == 1)
    (once,) = await stage.submit(task="once", announced=True)
    await until(lambda: first.broker.hanging == 2)
    await first.kill()
    store, failed = stage.store, list[str]()
    fail = store.dispatching.fail

    async def fails_once(partition: int, epoch: int, jobs: Sequence[DispatchedJob], **options: Any) -> Withdrawn:
        if not failed:
            failed.append(options["reason"])
            raise KeyError("a bug (staged)")
        return await fail(partition, epoch, jobs, **options)

    vars(store.dispatching)["fail"] = fails_once
    second = stage.start(store=store)
    player = await stage.player_of_declared()
    await player.has(1)
    behind = await stage.submit(3, task="alone")
    await stage.pass_by(30)

    assert failed
    assert [each.store.id for each in player.envelopes if each.store] == [limited]
    assert stage.job(once).state is JobState.FAILED
    assert stage.holds_all(second)
    # Its jobs in flight use up the limit once, and release it once.
    for count in range(3, -1, -1):
        await player.has(1)
        assert len(player.deliveries) == 1
        assert [stage.job(each).state for each in behind].count(JobState.QUEUED) == count
        await player.finish()
    await stage.all_ended()
    assert second.scheduler.status().in_flight == {}


@run_by(play_one, _define)
async def test_two_copies_of_a_message_are_two_starts_and_one_end(stage: Stage, /) -> None:
    process = await _start_scheduler(stage)
    player = await stage.player_of_declared()
    (job_id,) = await stage.submit(task="once", announced=True)
    await player.has(1)
    # Like the publisher of RabbitMQ when its connection breaks before the confirm.
    copy = Outgoing(
        queue=jobs_queue("work"), body=player.deliveries[0].body, content_type=JSON, job_id=job_id, task="once"
    )
    await stage.broker.publish(copy, timeout=5)
    await player.has(2)

    first, second = player.envelopes
    await player.report(first, "started")
    await player.report(second, "started", worker="another")
    await player.finish()
    await until(lambda: sum(process.scheduler.status().reports.values()) == 4)

    assert process.scheduler.status().reports == {"accepted": 3, "superseded": 1}
    assert stage.job(job_id).state is JobState.SUCCEEDED
    assert process.scheduler.status().in_flight == {}
