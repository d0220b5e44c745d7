"""Schedulers that advance runs of workflows, over outages and deaths."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import (
    Advanced,
    DispatchBatch,
    FindHold,
    JobStore,
    MakeJob,
    NewJob,
    NewRun,
    PartitionHold,
    Pick,
    find_no_hold,
    partition_key,
)
from taskmq.errors import StoreRefused, StoreUnavailable
from taskmq.model.envelope import JSON, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.jobs.pools import EVERY_TENANT, Sharing, TenantPool
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.records import RunState
from taskmq.model.runs.validation import validate_workflow
from taskmq.model.states import JobState
from taskmq.model.values.return_type import PLAIN
from taskmq.operations.queues import pause_queues, resume_queues
from taskmq.scheduler.firing.due_loop import StoreClock
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.wakeups import Wakeups
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Process, Stage, play_one, until


def _define(app: TaskMQ) -> None:
    @app.task(name="t", queue="work", priority=7)
    async def t(number: int = 0) -> int:
        return number

    @app.task(name="once", queue="work", ack="early")
    async def once() -> None: ...


def _play(test: object) -> None:
    play_one(test, _define)  # type: ignore[arg-type]


async def _start(stage: Stage, steps: dict[str, Any]) -> str:
    (run_id,) = await _start_many(stage, steps, 1)
    return run_id


async def _start_many(stage: Stage, steps: dict[str, Any], count: int) -> list[str]:
    content, faults = validate_workflow({"steps": steps})
    assert content is not None, faults
    text, now = encode_workflow(content)[1], stage.clock.now_ms()
    ids = [new_job_id(now, next(stage.numbers).to_bytes(10, "big")) for _ in range(count)]
    started = await stage.store.runs.start([NewRun(id=run_id, content=text) for run_id in ids])
    assert all(each.is_new for each in started)
    return ids


def _break_runs(store: JobStore, broken: Collection[str]) -> None:
    """Let each transaction fail that advances one of these runs."""
    advance = store.runs.advance

    async def advance_others(
        run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        if not set(run_ids).isdisjoint(broken):
            raise ValueError("broken")
        return await advance(run_ids, make_job, find_hold)

    store.runs.advance = advance_others  # type: ignore[method-assign]


async def _has_ended(stage: Stage, run_id: str) -> bool:
    run = await stage.store.runs.get(run_id)
    return run is not None and run.ended is not None


async def _finish(player: Player, value: int) -> None:
    """Succeed with the next invitation."""
    await until(lambda: bool(player.deliveries))
    await player.finish(content_type=JSON, result=PLAIN.encode(value, JSON))


_CHAIN = {
    "a": {"task": "t", "args": [1]},
    "b": {"task": "t", "args": ["${steps.a.result}"]},
    "c": {"task": "t", "args": ["${steps.b.result}"]},
}


@run_by(_play)
async def test_a_run_continues_after_the_death_of_its_scheduler(stage: Stage, /) -> None:
    first = stage.start()
    player = await stage.player_of_declared()
    run_id = await _start(stage, _CHAIN)
    await _finish(player, 10)
    await until(lambda: bool(player.deliveries))
    await first.kill()
    stage.start()
    await _finish(player, 20)
    await _finish(player, 30)
    await until(lambda: _has_ended(stage, run_id), within=120)

    run = await stage.store.runs.get(run_id)
    assert run is not None
    assert run.state is RunState.SUCCEEDED
    assert await stage.store.runs.run_value(run_id) == b'{"c":30}'


@run_by(_play)
async def test_a_run_waits_for_the_store_and_the_log_says_so_once(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    run_id = await _start(stage, _CHAIN)
    await _finish(player, 10)
    await until(lambda: bool(player.deliveries))
    with caplog.at_level(logging.WARNING, "taskmq.scheduler"):
        process.store.is_reachable = False
        began = stage.clock.monotonic()
        await until(lambda: stage.clock.monotonic() > began + 8)
        process.store.is_reachable = True
    stage.plays(player)
    await until(lambda: _has_ended(stage, run_id), within=120)

    assert sum("runs of workflows wait" in line for line in caplog.messages) == 1


@run_by(_play)
async def test_a_sleeping_step_ends_when_its_time_has_come(stage: Stage, /) -> None:
    stage.start()
    run_id = await _start(stage, {"a": {"sleep": "90.2s"}})
    await until(lambda: _has_ended(stage, run_id), within=200)

    (step,) = await stage.store.runs.steps(run_id)
    assert step.started is not None
    assert step.ended is not None
    assert round((step.ended - step.started) / 1000) == 90


@run_by(_play)
async def test_steps_and_short_sleeps_wait_for_no_search(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    run_id = await _start(stage, _CHAIN | {"d": {"sleep": "70ms", "needs": ["c"]}})
    for number in range(3):
        await _finish(player, number)
    await until(lambda: _has_ended(stage, run_id))

    steps = await stage.store.runs.steps(run_id)
    instants = [step.ended or 0 for step in steps]
    assert max(later - earlier for earlier, later in pairwise(instants)) < 100


@run_by(_play)
async def test_the_end_of_a_lone_step_waits_for_no_other_reports(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    stage.plays(player)
    steps = {f"s{number}": {"task": "t", "needs": [f"s{number - 1}"] if number else []} for number in range(10)}
    run_id = await _start(stage, steps)
    await until(lambda: _has_ended(stage, run_id))

    instants = [step.ended or 0 for step in await stage.store.runs.steps(run_id)]
    # Few reports of other jobs would wait for 10 ms.
    assert max(later - earlier for earlier, later in pairwise(instants)) < 10


def _count_dispatches(process: Process) -> list[int]:
    """Return the sizes of the batches that the scheduler's dispatchers take from lanes, as they come."""
    dispatching = process.store.dispatching
    dispatch, sizes = dispatching.dispatch, list[int]()

    async def count(partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        batch = await dispatch(partition, epoch, picks)
        sizes.append(0 if batch is None else len(batch.jobs))
        return batch

    vars(dispatching)["dispatch"] = count
    return sizes


@run_by(_play)
async def test_the_steps_of_a_chain_are_dispatched_as_their_run_advances(stage: Stage, /) -> None:
    sizes = _count_dispatches(stage.start())
    player = await stage.player_of_declared()
    run_id = await _start(stage, _CHAIN)
    # The first step takes its turn, because pools have to be read.
    await player.has(1)
    sizes.clear()
    stage.plays(player)
    await until(lambda: _has_ended(stage, run_id))

    assert sizes == []


@run_by(_play)
async def test_steps_keep_to_the_cap_of_a_pool_although_no_job_was_ready_before(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    await _start(stage, {"a": {"task": "t"}})
    await player.has(1)
    pool = TenantPool(name=EVERY_TENANT, max={"slots": 1.0})
    await stage.store.share(Sharing(version=1, pools={pool.name: pool}))
    run_id = await _start(stage, {"a": {"task": "t"}})

    async def has_job() -> bool:
        return bool(await stage.store.runs.steps(run_id))

    await until(has_job)
    await stage.pass_by(1.0)
    assert len(player.deliveries) == 1
    await player.finish()
    await player.has(1)


@run_by(_play)
async def test_a_step_of_a_paused_queue_waits_until_it_is_resumed(stage: Stage, /) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    stage.plays(player)
    await pause_queues(process.app, ["work"])
    run_id = await _start(stage, _CHAIN)
    began = stage.clock.monotonic()
    await until(lambda: stage.clock.monotonic() > began + 5)
    assert not await _has_ended(stage, run_id)

    await resume_queues(process.app, ["work"])

    await until(lambda: _has_ended(stage, run_id))


@run_by(_play)
async def test_a_step_is_published_although_the_answer_about_its_dispatch_was_lost(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    advance, lost = process.store.runs.advance, list[str]()

    async def lose(
        run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        advanced = await advance(run_ids, make_job, find_hold)
        batches = [one.batch for one in advanced.values() if one.batch is not None]
        if batches and not lost:
            lost.extend(job.id for batch in batches for job in batch.jobs)
            raise StoreUnavailable("lost", is_certain=False)
        return advanced

    process.store.runs.advance = lose  # type: ignore[method-assign]
    run_id = await _start(stage, _CHAIN)
    await player.has(1)
    await player.finish(content_type=JSON, result=b"1")
    await player.has(1)

    assert [envelope.id for envelope in player.envelopes] == lost
    assert "partition 0: 1 jobs were not confirmed; publishing them again" in caplog.messages
    stage.plays(player)
    await until(lambda: _has_ended(stage, run_id))


@run_by(_play)
async def test_a_step_that_runs_at_most_once_runs_although_its_scheduler_stops(stage: Stage, /) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    run_id, goes_on = await _dispatch_with_late_answer(stage, process, player, "once")
    stopping = asyncio.create_task(process.stop())
    await stage.pass_by(0.3)
    goes_on.set()
    await stopping

    stage.start()
    await player.has(1)
    await stage.pass_by(20)

    assert len(player.deliveries) == 1
    await player.finish()
    await until(lambda: _has_ended(stage, run_id))
    assert [step.state for step in await stage.store.runs.steps(run_id)] == ["succeeded", "succeeded"]


@run_by(_play)
async def test_a_transaction_and_publishes_delay_the_end_of_a_scheduler_by_five_seconds(stage: Stage, /) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    await _dispatch_with_late_answer(stage, process, player, "t")
    vars(process.store.dispatching)["take_claims"] = _hang
    job_id = new_job_id(stage.clock.now_ms(), next(stage.numbers).to_bytes(10, "big"))
    body = encode_envelope(Envelope(id=job_id, task="t", key="k"))
    await stage.store.submit([NewJob(id=job_id, task="t", queue="work", body=body)])
    await until(lambda: stage.job(job_id).state is JobState.DISPATCHED)

    began = stage.clock.monotonic()
    await process.stop()

    # The dispatcher had waited for the publishes five seconds before.
    assert 10 < stage.clock.since(began) < 13


@run_by(_play)
async def test_a_lost_partition_does_not_wait_for_a_transaction(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    await _dispatch_with_late_answer(stage, process, player, "t")
    stopping = asyncio.create_task(process.stop())
    await stage.pass_by(0.3)

    stage.database.ask("UPDATE lease SET epoch = epoch + 1 WHERE key = ?", partition_key(0))
    await until(lambda: any("partition 0 is lost" in line for line in caplog.messages))
    began = stage.clock.monotonic()
    await stopping

    assert stage.clock.since(began) < 1.5


async def _dispatch_with_late_answer(
    stage: Stage, process: Process, player: Player, task: str
) -> tuple[str, asyncio.Event]:
    """Let a step be dispatched with its run; return the run, and the event that lets the store answer."""
    advance, is_dispatched, goes_on = process.store.runs.advance, asyncio.Event(), asyncio.Event()

    async def answer_late(
        run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        advanced = await advance(run_ids, make_job, find_hold)
        if any(one.batch for one in advanced.values()):
            is_dispatched.set()
            await goes_on.wait()
        return advanced

    process.store.runs.advance = answer_late  # type: ignore[method-assign]
    # The first step takes its turn, because pools have to be read.
    run_id = await _start(stage, {"a": {"task": task}, "b": {"task": task, "needs": ["a"]}})
    await player.has(1)
    await player.finish()
    await is_dispatched.wait()
    return run_id, goes_on


async def _hang(*_: Any) -> None:
    await asyncio.Event().wait()


@run_by(_play)
async def test_a_scheduler_keeps_its_partition_if_the_store_refuses_the_change_of_a_run(stage: Stage, /) -> None:
    process = stage.start()
    player = await stage.player_of_declared()
    await _start(stage, {"a": {"task": "t"}})
    await player.has(1)
    advance, holds = process.store.runs.advance, list[PartitionHold]()

    async def refuse(
        run_ids: Sequence[str], make_job: MakeJob, find_hold: FindHold = find_no_hold
    ) -> dict[str, Advanced]:
        if not holds and (hold := find_hold(NewJob(id="", task="t", queue="work", body=b""))) is not None:
            holds.append(hold)
            raise StoreRefused("rejected")
        return await advance(run_ids, make_job, find_hold)

    process.store.runs.advance = refuse  # type: ignore[method-assign]
    run_id = await _start(stage, {"a": {"task": "t"}})
    stage.plays(player)
    await until(lambda: _has_ended(stage, run_id))

    lease = await stage.store.dispatching.leases.find(partition_key(0))
    assert lease is not None
    assert [hold.epoch for hold in holds] == [lease.token]


@run_by(_play)
async def test_a_step_has_the_priority_of_its_task_unless_it_has_its_own(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    await _start(stage, {"a": {"task": "t"}, "b": {"task": "t", "options": {"priority": 2}}})
    await until(lambda: len(player.deliveries) == 2)

    bodies = [decode_envelope(delivery.body) for delivery in player.deliveries]
    assert sorted((body.priority, body.args) for body in bodies) == [(2, msgspec.Raw(b"[]")), (7, msgspec.Raw(b"[]"))]
    assert {body.parent for body in bodies} == {None}


@pytest.mark.nightly("tests/unit/scheduler/test_publish.py::test_an_oversized_job_fails_and_its_neighbours_run")
@run_by(_play)
async def test_a_step_with_a_message_that_the_broker_would_refuse_fails(stage: Stage, /) -> None:
    process = stage.start()
    longest = process.broker.max_message_bytes
    run_id = await _start(stage, {"a": {"task": "unknown", "args": ["x" * longest]}})
    await until(lambda: _has_ended(stage, run_id))

    (step,) = await stage.store.runs.steps(run_id)
    assert "of task unknown" in step.error


@run_by(_play)
async def test_a_run_that_cannot_be_advanced_holds_up_no_others(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    broken, *others = [await _start(stage, {"a": {"task": "t"}}) for _ in range(4)]
    _break_runs(stage.start().store, {broken})
    stage.plays(await stage.player_of_declared())
    for run_id in others:
        await until(partial(_has_ended, stage, run_id))

    assert not await _has_ended(stage, broken)
    assert {line for line in caplog.messages if "advanced" in line} == {
        f"run {broken} cannot be advanced, will retry"
    }


@run_by(_play)
async def test_more_runs_than_are_kept_in_memory_are_all_advanced(stage: Stage, /) -> None:
    run_ids = await _start_many(stage, {"a": {"value": 1}}, 40)
    process = stage.start()
    advances = RunAdvances(
        process.app,
        process.store,
        Wakeups(process.store.dispatching, None),
        clock=StoreClock(process.store.now_ms),
        most=15,
    )

    advances.advance_soon(run_ids)
    assert advances.pending == 15
    await advances.advance_all()

    assert all([await _has_ended(stage, run_id) for run_id in run_ids])


@run_by(_play)
async def test_many_runs_that_cannot_be_advanced_hide_no_later_one(stage: Stage, /) -> None:
    *broken, last = await _start_many(stage, {"a": {"task": "t"}}, 401)
    _break_runs(stage.start().store, set(broken))
    stage.plays(await stage.player_of_declared())

    await until(partial(_has_ended, stage, last), within=20)
