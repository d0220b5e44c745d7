"""Jobs that the scheduler places on nodes, with workers that a test controls."""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ, WorkQueue
from taskmq.client.queues import StatePauses
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import DispatchBatch, JobDetail, JobUpdate, Lane, Pick, partition_key
from taskmq.errors import BrokerUnavailable, PublishRejected, StateUnavailable, StoreUnavailable
from taskmq.model.commands import QueuePause
from taskmq.model.envelope import decode_envelope
from taskmq.model.history.alerts import AlertRule, AlertState
from taskmq.model.jobs.pools import Sharing, TenantPool
from taskmq.model.nodes import LOST_AFTER_MS, HostNode, JobNeeds, NodeTold
from taskmq.model.states import JobState
from taskmq.model.topology import node_queue
from taskmq.operations.queues import pause_queues, resume_queues
from taskmq.scheduler.alerts import AlertSettings
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partition import AppRules, PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.pauses import PausedQueues
from taskmq.stored_jobs.explanations import explain_job
from taskmq_local import open_memory_broker, open_memory_state
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Stage, play_one, until
from tests.unit.store_kit import StagedStore

_TOLD = NodeTold(name="a", capacity={"slots": 8.0, "cpu": 4.0}, lost_after=LOST_AFTER_MS, runs_jobs=True)


_QUEUES = (WorkQueue("train", placed=True),)


def _needs(cpu: float = 1.0, **fields: Any) -> JobDetail:
    return JobDetail(needs=JobNeeds(resources={"cpu": cpu}, **fields))


async def _node(stage: Stage, name: str = "a") -> HostNode:
    return next(node for node in await stage.store.nodes.nodes() if node.name == name)


async def _worker(stage: Stage, name: str = "a", *, silent_after: float = inf, every: float = 1) -> Player:
    """Start a worker of a node that reports every second, or less often, that many times."""
    await _teller(stage, name, silent_after=silent_after, every=every)
    return await stage.player_of_declared(node_queue(name))


async def _teller(stage: Stage, name: str = "a", *, silent_after: float = inf, every: float = 1) -> None:
    async def tell() -> None:
        until_then = stage.clock.monotonic() + silent_after
        while stage.clock.monotonic() < until_then:
            stage.worker_says("beat", name=f"w-{name}", node=replace(_TOLD, name=name))
            await stage.pass_by(every)

    stage.tasks.append(asyncio.create_task(tell()))
    await _report_node(stage, name)


async def _report_node(stage: Stage, *names: str) -> None:
    async def are_known() -> bool:
        return {node.name for node in await stage.store.nodes.nodes()} >= set(names)

    await until(are_known)


@run_by(play_one, queues=_QUEUES)
async def test_a_job_is_placed_on_a_suitable_node(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    (job,) = await stage.submit(queue="train", detail=_needs(3.0))

    await player.has(1)

    assert player.envelopes[0].id == job
    assert stage.job(job).state is JobState.DISPATCHED
    assert (await _node(stage)).used == {"slots": 1.0, "cpu": 3.0}
    await player.finish()
    await stage.all_ended()
    assert (await _node(stage)).used == {}


@run_by(play_one, queues=_QUEUES)
async def test_placed_jobs_are_published_even_if_the_store_fails_in_the_same_iteration(stage: Stage, /) -> None:
    class Going(StagedStore):
        @property
        def dispatching(self) -> Any:
            return _GoingDispatch(super().dispatching)

    class _GoingDispatch:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
            raise StoreUnavailable("the store is gone")

    assert stage.partition_of("mail") == stage.partition_of("train")
    process = stage.start(store=Going(stage.database, clock=stage.clock))
    player = await _worker(stage)
    (other,) = await stage.submit(queue="mail")
    (job,) = await stage.submit(queue="train", detail=_needs())

    await player.has(1)

    assert player.envelopes[0].id == job
    assert stage.job(other).state is JobState.QUEUED
    assert process.scheduler.status().dispatched == 1


@run_by(play_one, queues=_QUEUES)
async def test_a_paused_queue_holds_unplaced_jobs_until_it_is_resumed(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage)
    (placed,) = await stage.submit(queue="train", detail=_needs())
    await player.has(1)
    session = process.app.sessions.current()
    states = session.pauses
    assert states is not None

    await states.pause_queue("train", QueuePause(since=0, note="the printer is broken"))
    await stage.pass_by(6)
    (waiting,) = await stage.submit(queue="train", detail=_needs())
    await stage.pass_by(30)

    # Jobs already assigned start; nothing more is placed although there is room.
    assert [envelope.id for envelope in player.envelopes] == [placed]
    assert stage.job(waiting).state is JobState.QUEUED
    explained = await explain_job(session, stage.store, stage.job(waiting))
    assert explained.reasons[0].startswith(
        "queue 'train' has been paused since 1970-01-01T00:00:00+00:00 (the printer"
    )
    await states.resume_queue("train")
    await player.has(2)


@run_by(play_one, queues=_QUEUES)
async def test_a_starting_scheduler_knows_pauses(stage: Stage, /) -> None:
    state = open_memory_state(f"memory://{stage.name}", BrokerOptions(name="operator", clock=stage.clock))
    await StatePauses(state.schedules).pause_queue("train", QueuePause(since=0))
    (job,) = await stage.submit(queue="train", detail=_needs())
    stage.start()
    await _teller(stage)
    await stage.pass_by(20)

    assert stage.job(job).state is JobState.QUEUED
    await StatePauses(state.schedules).resume_queue("train")
    await (await stage.player_of_declared(node_queue("a"))).has(1)
    await state.aclose()


class _Away(StatePauses):
    """Pauses in a state that does not answer while a test says so."""

    is_away = False

    async def queue_pauses(self) -> dict[str, QueuePause]:
        if self.is_away:
            raise StateUnavailable("the state is away")
        return await super().queue_pauses()


@run_by(play_one, queues=_QUEUES)
async def test_a_pause_in_the_state_holds_placed_jobs_at_once(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage)
    (placed,) = await stage.submit(queue="train", detail=_needs())
    await player.has(1)

    await pause_queues(process.app, ["train"])
    await stage.pass_by(0.1)
    (waiting,) = await stage.submit(queue="train", detail=_needs())
    await stage.pass_by(3)

    assert [envelope.id for envelope in player.envelopes] == [placed]
    assert stage.job(waiting).state is JobState.QUEUED
    await resume_queues(process.app, ["train"])
    await stage.pass_by(1)
    await player.has(2)


@run_by(play_one, queues=_QUEUES)
async def test_without_the_state_the_last_known_pauses_apply(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    state = open_memory_state(f"memory://{stage.name}", BrokerOptions(name="operator", clock=stage.clock))
    store = _Away(state.schedules)
    changes: list[bool] = []
    broker = open_memory_broker(f"memory://{stage.name}", BrokerOptions(name="operator", clock=stage.clock))
    pauses = PausedQueues(broker, store, app=None, on_change=lambda: changes.append(True))
    await store.pause_queue("train", QueuePause(since=0))
    await pauses.load()

    store.is_away = True
    for _ in range(3):
        await pauses.load()
    assert pauses.is_paused("train")
    assert [record.getMessage() for record in caplog.records] == [
        "reading the paused queues failed, the last known pauses apply: the state is away"
    ]
    store.is_away = False
    await store.resume_queue("train")
    await pauses.load()

    assert not pauses.is_paused("train")
    assert len(changes) == 2
    await broker.aclose()
    await state.aclose()


@run_by(play_one, queues=_QUEUES)
async def test_a_waiting_job_starts_when_another_has_ended(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    first, second = await stage.submit(2, queue="train", detail=_needs(3.0))

    await player.has(1)
    await stage.pass_by(5)
    assert {stage.job(job).state for job in (first, second)} == {JobState.DISPATCHED, JobState.QUEUED}

    await player.finish()
    await player.has(1)
    await player.finish()
    await stage.all_ended()


@run_by(play_one, queues=_QUEUES)
async def test_jobs_of_other_queues_start_beside_one_that_fits_nowhere(stage: Stage, /) -> None:
    stage.start()
    await _worker(stage)
    (huge,) = await stage.submit(queue="train", detail=_needs(64.0))
    await stage.playing("work")
    jobs = await stage.submit(20, queue="work")

    await until(lambda: all(stage.job(job).state is JobState.SUCCEEDED for job in jobs))

    assert stage.job(huge).state is JobState.QUEUED


@run_by(play_one, queues=_QUEUES)
async def test_a_job_that_fits_nowhere_expires(stage: Stage, /) -> None:
    stage.start()
    (homeless,) = await stage.submit(queue="train", detail=_needs(), expires=await stage.store.now_ms() + 5_000)
    await stage.pass_by(3)
    assert stage.job(homeless).state is JobState.QUEUED
    await until(lambda: stage.job(homeless).state is JobState.EXPIRED)

    await _worker(stage)
    (huge,) = await stage.submit(queue="train", detail=_needs(64.0), expires=await stage.store.now_ms() + 5_000)
    await stage.pass_by(3)
    assert stage.job(huge).state is JobState.QUEUED
    await until(lambda: stage.job(huge).state is JobState.EXPIRED)


@run_by(play_one, queues=_QUEUES)
async def test_the_jobs_of_a_lost_node_run_on_another_one(stage: Stage, /) -> None:
    stage.start()
    first = await _worker(stage, silent_after=5)
    (job,) = await stage.submit(queue="train", detail=_needs())
    await first.has(1)
    stale = decode_envelope(first.deliveries[0].body)
    # Node a is silent from now on; b keeps reporting.
    second = await _worker(stage, "b")

    await second.has(1)

    assert (await _node(stage)).state == "lost"
    assert second.envelopes[0].id == job
    await first.report(stale)
    await second.finish(result=b"2")
    await stage.all_ended()
    assert stage.job(job).result == b"2"


@run_by(play_one, queues=_QUEUES)
async def test_a_node_is_lost_after_three_missed_heartbeats_and_not_after_two(stage: Stage, /) -> None:
    stage.start()
    for _ in range(4):
        stage.worker_says("beat", name="w-a", node=_TOLD)
        await stage.pass_by(10)
    # One is missed so far, then another one, and the third one is late.
    await stage.pass_by(23)
    assert (await _node(stage)).state == "available"
    stage.worker_says("beat", name="w-a", node=_TOLD)

    await stage.pass_by(34)
    assert (await _node(stage)).state == "available"
    await stage.pass_by(4)
    assert (await _node(stage)).state == "lost"


@run_by(play_one, queues=_QUEUES)
async def test_no_node_is_lost_because_no_scheduler_was_listening(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage, every=10)
    (job,) = await stage.submit(queue="train", detail=_needs())
    await player.has(1)
    await stage.pass_by(1)

    await process.kill()
    await stage.pass_by(63)
    stage.start()
    await stage.pass_by(60)

    node = await _node(stage)
    assert (node.state, node.epoch) == ("available", node.registered)
    assert len(player.deliveries) == 1
    await player.finish()
    await stage.all_ended()
    assert stage.job(job).state is JobState.SUCCEEDED


@pytest.mark.nightly("tests/unit/scheduler/test_placing.py::test_no_node_is_lost_because_no_scheduler_was_listening")
@run_by(play_one, queues=_QUEUES)
async def test_no_node_is_lost_during_a_broker_outage_or_right_after(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage, every=10)
    await stage.submit(queue="train", detail=_needs())
    await player.has(1)
    await stage.pass_by(60)

    process.broker.is_deaf = True
    await stage.pass_by(63)
    process.broker.is_deaf = False
    await stage.pass_by(60)

    node = await _node(stage)
    assert (node.state, node.epoch) == ("available", node.registered)
    assert len(player.deliveries) == 1


@pytest.mark.nightly("tests/unit/scheduler/test_placing.py::test_no_node_is_lost_because_no_scheduler_was_listening")
@run_by(play_one, queues=_QUEUES)
async def test_a_node_is_lost_once_schedulers_have_listened_long_enough_again(stage: Stage, /) -> None:
    process = stage.start()
    await _worker(stage, silent_after=60)
    await stage.pass_by(50)
    process.broker.is_deaf = True
    await stage.pass_by(60)
    process.broker.is_deaf = False

    await stage.pass_by(30)
    assert (await _node(stage)).state == "available"
    await stage.pass_by(15)
    assert (await _node(stage)).state == "lost"


@run_by(play_one, queues=_QUEUES)
async def test_the_next_holder_of_a_partition_knows_the_node_of_each_job(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage)
    jobs = await stage.submit(3, queue="train", detail=_needs(2.0))
    await player.has(2)
    # The store knows by then that the batch is confirmed.
    await stage.pass_by(1)

    await process.kill()
    stage.start()
    await stage.pass_by(20)

    assert len(player.deliveries) == 2
    await player.finish()
    await player.has(1)
    await player.finish()
    await stage.all_ended()
    assert {stage.job(job).state for job in jobs} == {JobState.SUCCEEDED}
    assert {stage.job(job).attempt for job in jobs} == {1}


@run_by(play_one, queues=_QUEUES)
async def test_an_unconfirmed_batch_goes_to_the_same_node_again(stage: Stage, /) -> None:
    process = stage.start()
    player = await _worker(stage)
    process.broker.fail_publishes(10_000, BrokerUnavailable("no broker"))
    (job,) = await stage.submit(queue="train", detail=_needs())
    await until(lambda: stage.job(job).state is JobState.DISPATCHED)

    await process.kill()
    stage.start()
    await player.has(1)

    await player.finish()
    await stage.all_ended()
    assert stage.job(job).state is JobState.SUCCEEDED


@run_by(play_one, queues=_QUEUES)
async def test_a_node_with_a_full_queue_delays_no_other_node(stage: Stage, /) -> None:
    process = stage.start()
    first = await _worker(stage, "a")
    second = await _worker(stage, "b")
    process.broker.fail_publishes(1, PublishRejected("the node's queue is full"))
    (refused,) = await stage.submit(queue="train", detail=_needs(4.0))
    await until(lambda: bool(process.scheduler.status().paused))
    assert set(process.scheduler.status().paused) == {node_queue("a")}

    began = stage.clock.monotonic()
    await second.has(1)

    assert stage.clock.since(began) < 0.9
    assert second.envelopes[0].id == refused
    assert first.envelopes == []


@run_by(play_one, queues=_QUEUES)
async def test_a_drained_node_gets_no_more_jobs(stage: Stage, /) -> None:
    stage.start()
    first = await _worker(stage)
    await stage.store.nodes.drain("a", drains=True)
    (job,) = await stage.submit(queue="train", detail=_needs())
    await stage.pass_by(5)
    assert stage.job(job).state is JobState.QUEUED

    await stage.store.nodes.drain("a", drains=False)
    await first.has(1)


@run_by(play_one, queues=_QUEUES)
async def test_a_gang_waits_until_there_is_room_for_all_of_it(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    await stage.submit(queue="train", detail=_needs(3.0))
    await player.has(1)
    gang = await stage.submit(2, queue="train", detail=_needs(2.0, gang="g", gang_size=2))
    await stage.pass_by(3)
    assert {stage.job(job).state for job in gang} == {JobState.QUEUED}

    await player.finish()
    await player.has(2)

    assert {envelope.id for envelope in player.envelopes} == set(gang)


@run_by(play_one, queues=_QUEUES)
async def test_an_invalid_node_is_not_recorded(stage: Stage, /) -> None:
    stage.start()
    await _worker(stage)
    stage.worker_says("beat", node=NodeTold(name="no spaces", capacity={"cpu": 1.0}))
    await stage.pass_by(3)

    assert [node.name for node in await stage.store.nodes.nodes()] == ["a"]


@pytest.mark.nightly(
    "tests/unit/scheduler/test_placing.py::test_jobs_of_other_queues_start_beside_one_that_fits_nowhere"
)
@run_by(play_one, queues=_QUEUES)
async def test_full_nodes_do_not_delay_other_queues_of_their_partition(stage: Stage, /) -> None:
    assert stage.partition_of("mail") == stage.partition_of("train")
    stage.start()
    player = await _worker(stage)
    await stage.submit(queue="train", detail=_needs(4.0))
    await player.has(1)
    # More than one page, none of which fits now.
    await stage.submit(600, queue="train", detail=_needs(4.0))
    other = await stage.player_of_declared("mail")
    stage.worker_says("beat", name="w-other", slots=100)
    await stage.pass_by(5)

    for count in range(1, 21):
        await stage.submit(queue="mail", announced=True)
        await other.has(count, within=0.05)
        # The nodes stay full and are read less and less often.
        await stage.pass_by(0.13)

    assert stage.states()[JobState.QUEUED] == 600


@run_by(play_one, queues=_QUEUES)
async def test_a_job_behind_many_that_fit_nowhere_gets_its_turn(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    await stage.submit(1200, queue="train", detail=_needs(64.0))
    (small,) = await stage.submit(queue="train", detail=_needs())

    await player.has(1)

    assert stage.job(small).state is JobState.DISPATCHED
    assert stage.states() == {JobState.QUEUED: 1200, JobState.DISPATCHED: 1}


@run_by(play_one, queues=_QUEUES)
async def test_a_job_behind_many_that_wait_for_a_busy_gpu_gets_its_turn(stage: Stage, /) -> None:
    stage.start()

    async def tell() -> None:
        has = {"slots": 8.0, "cpu": 4.0, "gpu": 1.0}
        while True:
            stage.worker_says("beat", name="w-a", node=replace(_TOLD, capacity=has))
            await stage.pass_by(1)

    stage.tasks.append(asyncio.create_task(tell()))
    await _report_node(stage, "a")
    player = await stage.player_of_declared(node_queue("a"))
    needs = JobDetail(needs=JobNeeds(resources={"cpu": 1.0, "gpu": 1.0}))
    (running,) = await stage.submit(queue="train", detail=needs)
    await player.has(1)
    await stage.submit(1200, queue="train", detail=needs)
    (small,) = await stage.submit(queue="train", detail=_needs())

    await player.has(2)

    assert [envelope.id for envelope in player.envelopes] == [running, small]


@run_by(play_one, queues=_QUEUES)
async def test_a_gang_across_the_end_of_a_page_behind_others_starts(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    await stage.submit(1498, queue="train", detail=_needs(64.0))
    gang = await stage.submit(4, queue="train", detail=_needs(gang="g", gang_size=4))

    await player.has(4)

    assert {stage.job(job).state for job in gang} == {JobState.DISPATCHED}


@run_by(play_one, queues=_QUEUES)
async def test_a_half_arrived_gang_does_not_start_where_two_pages_overlap(stage: Stage, /) -> None:
    store, partition = stage.store, stage.partition_of("train")
    epoch = await store.dispatching.leases.acquire(partition_key(partition), owner="a", seconds=60)
    assert isinstance(epoch, int)
    placer = Placer(store, HeldLease(partition, epoch, inf), PartitionState(AppRules(TaskMQ("memory://"))))
    await store.nodes.report([replace(_TOLD, capacity={"slots": 99.0, "cpu": 32.0})])
    (blocker,) = await stage.submit(queue="train", detail=_needs(64.0))
    await stage.submit(9, queue="train", detail=_needs())
    picks = [Pick(Lane("train", 4, ""), 10)]
    # The next page begins behind the last of these, so a new job is among its first ones.
    await placer.place(picks)
    await stage.pass_by(1)
    gang = await stage.submit(2, queue="train", detail=_needs(gang="g", gang_size=4))

    await placer.place(picks)

    assert {stage.job(job).state for job in (blocker, *gang)} == {JobState.QUEUED}


@pytest.mark.nightly("tests/unit/scheduler/test_placing.py::test_a_gang_waits_until_there_is_room_for_all_of_it")
@run_by(play_one, queues=(WorkQueue("train", placed=True, policy="fair"),))
async def test_a_gang_of_one_tenant_among_hundreds_starts(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    # One job or none is picked per tenant.
    for number in range(600):
        await stage.submit(queue="train", tenant=f"t{number}", detail=_needs(64.0))
    gang = await stage.submit(4, queue="train", tenant="zz", detail=_needs(gang="g", gang_size=4))

    await player.has(4)

    assert {stage.job(job).state for job in gang} == {JobState.DISPATCHED}


@run_by(play_one, queues=_QUEUES)
async def test_a_node_full_for_long_gets_the_next_job_at_once(stage: Stage, /) -> None:
    stage.start()
    player = await _worker(stage)
    await stage.submit(3, queue="train", detail=_needs(4.0))
    await player.has(1)

    for _ in range(2):
        await stage.pass_by(7.77)
        await player.finish()
        await player.has(1, within=0.05)

    await player.finish()
    await stage.all_ended()
    assert stage.states() == {JobState.SUCCEEDED: 3}


@run_by(play_one, queues=_QUEUES)
async def test_a_job_placed_again_while_its_first_run_counted_is_on_a_known_node(stage: Stage, /) -> None:
    stage.start()
    first = await _worker(stage, silent_after=5)
    (job,) = await stage.submit(queue="train", detail=_needs())
    await first.has(1)
    record = stage.job(job)
    # As if its message had been declared lost.
    update = JobUpdate(
        id=job, before=record.state, version=record.version, after=JobState.QUEUED, kind="change", due=record.due
    )
    assert await stage.store.update(update) is not None
    await first.has(2)
    second = await _worker(stage, "b")

    await second.has(1)

    await second.finish()
    await stage.all_ended()


@run_by(play_one, queues=_QUEUES)
async def test_no_pool_exceeds_its_cap_of_a_resource_and_others_pass(stage: Stage, /) -> None:
    await stage.store.share(Sharing(version=1, pools={"lab": TenantPool(name="lab", max={"cpu": 2.0})}))
    stage.start()
    player = await _worker(stage)
    large = await stage.submit(3, queue="train", tenant="lab", detail=_needs(1.5))
    (small,) = await stage.submit(queue="train", tenant="lab", detail=_needs(0.5))
    (other,) = await stage.submit(queue="train", tenant="else", detail=_needs(1.5))

    await player.has(3)
    await stage.pass_by(5)

    assert {small, other} < {envelope.id for envelope in player.envelopes}
    assert (await _node(stage)).used == {"slots": 3.0, "cpu": 3.5}
    assert stage.states() == {JobState.QUEUED: 2, JobState.DISPATCHED: 3}
    waits = next(job for job in large if stage.job(job).state is JobState.QUEUED)
    assert (
        "pool 'lab' has 2 of at most 2 cpu in that queue; this job needs 1.5 and waits until another one ends"
        in (await explain_job(stage.session, stage.store, stage.job(waits))).reasons
    )
    # Its successor knows its jobs.
    await stage.processes[0].kill()
    stage.start()
    await stage.pass_by(30)
    assert stage.states() == {JobState.QUEUED: 2, JobState.DISPATCHED: 3}
    for _ in range(3):
        await player.finish()
        await stage.pass_by(1)
    await stage.all_ended()


def _unschedulable(name: str, **fields: Any) -> AlertRule:
    return AlertRule(name=name, metric="unschedulable", threshold=0, **fields)


async def _firing(stage: Stage) -> dict[str, float]:
    await stage.pass_by(12)
    alerts = await stage.store.history.alerts.alerts()
    return {f"{one.rule} {one.subject}": one.value for one in alerts if one.state is AlertState.FIRING}


@run_by(play_one, queues=_QUEUES)
async def test_an_alert_continues_while_jobs_wait_that_no_node_could_run(stage: Stage, /) -> None:
    for rule in (_unschedulable("all"), _unschedulable("mine", tenant="acme", each="queue")):
        await stage.store.history.alerts.put_rule(rule)
    process = stage.start(alerts=AlertSettings())
    await stage.submit(3, queue="train", detail=_needs(labels={"region": "eu"}))
    assert await _firing(stage) == {"all ": 3.0}

    # A node without the label, and then one with it.
    await _worker(stage)
    # They fit and only wait for room; some of them are between the two that never will.
    await stage.submit(1, queue="train", detail=_needs(5.0), tenant="acme")
    await stage.submit(700, queue="train", detail=_needs(4.0), tenant="acme")
    await stage.submit(1, queue="train", detail=_needs(labels={"region": "eu"}), tenant="acme")
    await stage.submit(9, queue="work")
    assert await _firing(stage) == {"all ": 5.0, "mine queue:train": 2.0}

    await stage.store.nodes.report([replace(_TOLD, name="b", labels={"region": "eu"})])
    assert await _firing(stage) == {"all ": 1.0, "mine queue:train": 1.0}
    await stage.store.nodes.report([replace(_TOLD, name="c", capacity={"slots": 1.0, "cpu": 5.0})])
    assert await _firing(stage) == {}
    await process.stop()
