"""Runs preempted for pools below their share, with workers that a test controls."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.jobs import HistoryEntry, JobDetail, NewJob, Pick, UnplacedJob
from taskmq.model.commands import Preemption, decode_command
from taskmq.model.envelope import Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.pools import QueuePolicy, Sharing, TenantPool
from taskmq.model.jobs.reports import PREEMPTED
from taskmq.model.nodes import JobNeeds, NodeTold
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.topology import node_queue
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Stage, play_one, until
from tests.unit.store_kit import StagedStore

_REASON: Final = "preempted by pool acme"
_ACME: Final = {"acme": TenantPool(name="acme", min={"slots": 1})}
_POLICY: Final = QueuePolicy(policy="fifo", preempt_grace=10.0)


def _define(app: TaskMQ) -> None:
    @app.task(name="gives", preemptible=True)
    async def gives() -> None: ...

    @app.task(name="once", ack="early")
    async def once() -> None: ...


async def _stage(
    stage: Stage, *, slots: int = 2, policy: QueuePolicy = _POLICY, store: StagedStore | None = None
) -> tuple[Player, list[Preemption]]:
    """Start a scheduler and a worker, and record the commands to workers from now on."""
    told: list[Preemption] = []

    def hear(_: str, body: bytes) -> None:
        told.extend(decode_command(body).jobs)

    await stage.broker.listen(["worker.command.preempt"], hear)
    await stage.store.share(Sharing(version=1, queues={"work": policy}, pools=_ACME))
    stage.start(store=store)

    async def beat() -> None:
        while True:
            stage.worker_says(slots=slots)
            await stage.pass_by(1)

    stage.tasks.append(asyncio.create_task(beat()))
    player = await stage.player_of_declared()
    await stage.pass_by(3)
    return player, told


async def _begin(stage: Stage, player: Player, *jobs: str) -> dict[str, Envelope]:
    """Report that these run."""
    envelopes = {each.id: each for each in player.envelopes}
    for job in jobs:
        await player.report(envelopes[job], "started", started=stage.clock.now_ms())
        await until(lambda job=job: stage.job(job).state is JobState.RUNNING)  # type: ignore[misc]
        await stage.pass_by(0.01)
    return envelopes


async def _submit(stage: Stage, task: str, *, preemptible: bool) -> str:
    """Submit a job with its own preemption option."""
    job_id = new_job_id(stage.clock.now_ms(), uuid4().bytes)
    body = encode_envelope(Envelope(id=job_id, task=task, preemptible=preemptible))
    await stage.store.submit([NewJob(id=job_id, task=task, queue="work", body=body)])
    return job_id


async def _give_back(stage: Stage, player: Player, job: str, *, reason: str = _REASON) -> None:
    """Return a preempted run like a worker."""
    (delivery,) = [each for each in player.deliveries if job.encode() in each.body]
    player.deliveries.remove(delivery)
    envelope = decode_envelope(delivery.body)
    error = ErrorRecord(type_name=PREEMPTED, message=reason) if reason else None
    await player.report(envelope, "interrupted", started=stage.clock.now_ms(), error=error)
    delivery.ack()


def _events(stage: Stage, job: str) -> list[tuple[str, str]]:
    events: list[HistoryEntry] = stage.database.events(job)
    return [(event.kind, event.note) for event in events if event.kind.startswith("preempt")]


@run_by(play_one, _define)
async def test_the_newest_run_is_preempted_for_a_pool_below_its_share(stage: Stage, /) -> None:
    player, told = await _stage(stage)
    old, new = await stage.submit(2, task="gives")
    await player.has(2)
    await _begin(stage, player, old, new)
    (owed,) = await stage.submit(tenant="acme")
    await player.has(3)

    await stage.pass_by(4)
    assert told == []
    await until(lambda: len(told) == 1)

    asked = Preemption(job=new, token=stage.job(new).token, reason=_REASON, grace=10.0)
    assert told == [asked]
    assert _events(stage, new) == [("preempt_requested", _REASON)]
    # The request is repeated until its report arrives, and no other run is chosen instead.
    await stage.pass_by(6)
    assert told == [asked] * 2
    await _give_back(stage, player, new)
    await until(lambda: stage.job(new).state is not JobState.RUNNING)
    await _begin(stage, player, owed)
    await stage.pass_by(20)
    assert told == [asked] * 2
    assert _events(stage, new)[1:] == [("preempted", _REASON)]
    assert (stage.job(new).attempt, stage.job(new).error) == (1, None)
    assert stage.processes[0].scheduler.status().preempted == 1
    assert stage.processes[0].scheduler.snapshot().preempted == 1
    stage.plays(player)
    await stage.all_ended()


@run_by(play_one, _define)
async def test_only_preemptible_runs_are_preempted(stage: Stage, /) -> None:
    player, told = await _stage(stage, slots=5)
    jobs = [
        *(await stage.submit(task="t")),
        *(await stage.submit(task="once")),
        await _submit(stage, "gives", preemptible=False),
        await _submit(stage, "t", preemptible=True),
        await _submit(stage, "once", preemptible=True),
    ]
    await player.has(5)
    await _begin(stage, player, *jobs)
    await stage.submit(3, tenant="acme")

    await stage.pass_by(12)

    assert {each.job for each in told} == {jobs[3]}


@run_by(play_one, _define)
async def test_jobs_in_front_of_the_one_with_the_reserved_room_are_recalled(stage: Stage, /) -> None:
    player, told = await _stage(stage)
    runs = await stage.submit(2, task="gives")
    await player.has(2)
    await _begin(stage, player, *runs)
    await stage.submit(3)
    await player.has(4)
    waiting = [each.id for each in player.envelopes if each.id not in runs]
    (owed,) = await stage.submit(tenant="acme")
    await stage.pass_by(7)

    # Two wait at the broker, and one in the store, behind the one with the reserved room.
    recalled = {(job, stage.job(job).token) for job in waiting}
    assert {(each.job, each.token) for each in told if not each.reason} == recalled
    assert {each.job for each in told if each.reason} == {runs[1]}
    for job in waiting:
        await _give_back(stage, player, job, reason="")
    await until(lambda: stage.job(owed).state is JobState.DISPATCHED)
    assert _events(stage, waiting[0]) == []


@run_by(play_one, _define)
async def test_a_job_is_preempted_only_a_few_times_in_a_row(stage: Stage, /) -> None:
    policy = QueuePolicy(policy="fifo", preempt_after=1.0, preempt_most=2)
    player, told = await _stage(stage, slots=1, policy=policy)
    (job,) = await stage.submit(task="gives")
    for _ in range(2):
        await player.has(1)
        await _begin(stage, player, job)
        (owed,) = await stage.submit(tenant="acme")
        count = len(told)
        await until(lambda count=count: len(told) > count)  # type: ignore[misc]
        await _give_back(stage, player, job)
        await until(lambda owed=owed: owed in {each.id for each in player.envelopes})  # type: ignore[misc]
        await player.finish()
        await until(lambda owed=owed: stage.job(owed).state.is_final)  # type: ignore[misc]
    await player.has(1)
    await _begin(stage, player, job)
    await stage.submit(tenant="acme")
    told.clear()

    await stage.pass_by(20)

    assert told == []
    # Its next attempt is counted separately.
    await player.finish("retry", delay=1, started=stage.clock.now_ms(), error=ErrorRecord(type_name="E", message="x"))
    await until(lambda: any(each.id == job for each in player.envelopes))
    await _begin(stage, player, job)
    await stage.submit(tenant="acme")
    await until(lambda: {each.job for each in told} == {job})


@run_by(play_one, _define)
async def test_the_next_scheduler_continues_the_preemption_of_a_dead_one(stage: Stage, /) -> None:
    player, told = await _stage(stage)
    runs = await stage.submit(2, task="gives")
    await player.has(2)
    await _begin(stage, player, *runs)
    await stage.submit(2, tenant="acme")
    await until(lambda: len(told) == 1)
    await stage.processes[0].kill()
    told.clear()
    # Meanwhile its first run would be the newest.
    stage.start()

    await until(lambda: bool(told))
    await stage.pass_by(8)

    assert {(each.job, each.reason) for each in told} == {(runs[1], _REASON)}
    assert _events(stage, runs[0]) == []
    assert len(_events(stage, runs[1])) == 1


@run_by(play_one, _define)
async def test_a_run_that_does_not_stop_is_not_waited_for_forever(stage: Stage, /) -> None:
    player, told = await _stage(stage)
    runs = await stage.submit(2, task="gives")
    await player.has(2)
    await _begin(stage, player, *runs)
    await stage.submit(tenant="acme")
    await until(lambda: len(told) == 1)

    await until(lambda: {each.job for each in told} == set(runs))

    assert _events(stage, runs[0]) == [("preempt_requested", _REASON)]


@run_by(play_one, _define)
async def test_a_high_class_regains_its_share(stage: Stage, /) -> None:
    player, told = await _stage(stage, policy=QueuePolicy())
    runs = await stage.submit(2, task="gives", priority=1)
    await player.has(2)
    await _begin(stage, player, *runs)
    await stage.submit(2, priority=8)

    await stage.pass_by(8)

    assert {(each.job, each.reason) for each in told} == {(runs[1], "preempted by class high")}


@run_by(play_one, _define)
async def test_the_store_is_queried_once_for_the_jobs_of_all_owed_lanes(stage: Stage, /) -> None:
    store, asked = stage.store, list[int]()
    waiting = store.nodes.waiting

    async def note_jobs(picks: Sequence[Pick], **options: Any) -> list[UnplacedJob]:
        asked.append(len(picks))
        return await waiting(picks, **options)

    vars(store.nodes)["waiting"] = note_jobs
    player, told = await _stage(stage, policy=QueuePolicy(), store=store)
    runs = await stage.submit(2, task="gives", priority=1)
    await player.has(2)
    await _begin(stage, player, *runs)
    for number in range(20):
        await stage.submit(tenant=f"tenant-{number}", priority=8)

    await until(lambda: len(told) > 0)

    # The window holds one or two of them; polling is once a second.
    assert set(asked) <= {18, 19}
    assert len(asked) <= 8


@pytest.mark.nightly(
    "tests/unit/scheduler/test_preemption.py::test_the_newest_run_is_preempted_for_a_pool_below_its_share"
)
def test_runs_with_a_gpu_are_preempted_only_for_a_pool_that_is_owed_one() -> None:
    told_of = NodeTold(name="a", capacity={"slots": 8.0, "gpu": 2.0}, lost_after=30_000, runs_jobs=True)
    gpu = JobDetail(needs=JobNeeds(resources={"gpu": 1.0}))

    async def test(stage: Stage) -> None:
        told: list[Preemption] = []
        await stage.broker.listen(["worker.command.preempt"], lambda _, body: told.extend(decode_command(body).jobs))
        lab = {"lab": TenantPool(name="lab", min={"gpu": 1.0})}
        await stage.store.share(Sharing(version=1, queues={"train": _POLICY}, pools=lab))
        stage.start()

        async def beat() -> None:
            while True:
                stage.worker_says(node=told_of)
                await stage.pass_by(5)

        stage.tasks.append(asyncio.create_task(beat()))
        player = await stage.player_of_declared(node_queue("a"))
        with_gpu = await stage.submit(2, queue="train", task="gives", detail=gpu)
        plain = await stage.submit(2, queue="train", task="gives", detail=JobDetail(needs=JobNeeds()))
        await player.has(4)
        await _begin(stage, player, *with_gpu, *plain)
        owed = await stage.submit(2, queue="train", tenant="lab", detail=gpu)

        await until(lambda: len(told) == 1)
        assert told[0].job in with_gpu
        await _give_back(stage, player, told[0].job)
        await until(lambda: JobState.DISPATCHED in {stage.job(job).state for job in owed})
        await stage.pass_by(10)

        # The second one exceeds the share of the pool.
        assert stage.processes[0].scheduler.status().preempted == 1
        stage.plays(player)
        await stage.all_ended()

    play_one(test, _define, queues=(WorkQueue("train", placed=True),))


def test_a_large_job_gets_a_node_from_preemptible_jobs() -> None:
    told_of = NodeTold(name="a", capacity={"slots": 8.0, "cpu": 4.0}, lost_after=30_000, runs_jobs=True)

    def needs(cpu: float, **fields: Any) -> JobDetail:
        return JobDetail(needs=JobNeeds(resources={"cpu": cpu}), **fields)

    async def test(stage: Stage) -> None:
        told: list[Preemption] = []
        await stage.broker.listen(["worker.command.preempt"], lambda _, body: told.extend(decode_command(body).jobs))
        await stage.store.share(Sharing(version=1, queues={"train": _POLICY}, pools=_ACME))
        stage.start()

        async def beat() -> None:
            while True:
                stage.worker_says(node=told_of)
                await stage.pass_by(5)

        stage.tasks.append(asyncio.create_task(beat()))
        player = await stage.player_of_declared(node_queue("a"))
        small = await stage.submit(4, queue="train", task="gives", detail=needs(1.0))
        await player.has(4)
        await _begin(stage, player, *small)
        (large,) = await stage.submit(queue="train", tenant="acme", detail=needs(3.0))
        await stage.pass_by(0.1)
        behind = await stage.submit(2, queue="train", task="gives", detail=needs(1.0))

        await until(lambda: len(told) == 3)
        assert {each.job for each in told} == set(small[1:])
        for job in small[1:]:
            await _give_back(stage, player, job)
        await until(lambda: stage.job(large).state is JobState.DISPATCHED)

        assert {stage.job(job).state for job in (*small[1:], *behind)} == {JobState.QUEUED}
        await _begin(stage, player, large)
        await stage.pass_by(10)
        assert stage.processes[0].scheduler.status().preempted == 3
        stage.plays(player)
        await stage.all_ended()

    play_one(test, _define, queues=(WorkQueue("train", placed=True),))
