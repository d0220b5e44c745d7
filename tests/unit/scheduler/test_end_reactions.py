"""Reactions to ends of stored jobs that no worker sees."""

from functools import partial

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobAction, JobDetail, JobRecord
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL
from taskmq.reactions import JobEnded, job
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until

_CALLS = JobFilter(tasks=("react",))


def _define(app: TaskMQ) -> None:
    @app.task(name="t", queue="work")
    async def t() -> None: ...

    @app.on(job(t, state=TERMINAL))
    @app.task(name="react", queue="reactions", lane="store")
    async def react(ended: JobEnded) -> None: ...


def _define_with_broken(app: TaskMQ) -> None:
    def fail_to_derive(ended: JobEnded) -> str:
        raise ValueError(ended.state)

    app.task(name="u", queue="work")(lambda: None)

    # Delivered before the other reaction.
    @app.on(job("u", state="cancelled"))
    @app.task(name="broken", queue="work", idempotency_key=fail_to_derive)
    async def broken(ended: JobEnded) -> None: ...

    _define(app)


def _play(test: object) -> None:
    play_one(test, _define)  # type: ignore[arg-type]


async def _calls(stage: Stage) -> list[JobRecord]:
    return [stage.job(one.id) for one in (await stage.store.list_jobs(_CALLS)).jobs]


async def _read_ends(stage: Stage) -> dict[str, str]:
    """Return the state of each job that a call is about."""
    found: dict[str, str] = {}
    for call in await _calls(stage):
        (ended,) = msgspec.json.decode(bytes(decode_envelope(call.body).args), type=tuple[JobEnded])
        assert ended.job_id not in found
        found[ended.job_id] = ended.state
    return found


@run_by(_play)
async def test_every_end_without_a_worker_is_seen_once(stage: Stage, /) -> None:
    process = stage.start()
    (cancelled,) = await stage.submit(held=True)
    (expired,) = await stage.submit(expires=stage.clock.now_ms())
    (behind,) = await stage.submit(detail=JobDetail(depends_on=(JobDependency(cancelled),)))
    (unneeded,) = await stage.submit(detail=JobDetail(depends_on=(JobDependency(cancelled, "failed"),)))

    await process.app.jobs.acancel(cancelled)
    await until(lambda: stage.database.live == 4)
    await stage.pass_by(5)

    assert await _read_ends(stage) == {
        cancelled: "cancelled",
        expired: "expired",
        behind: "upstream_failed",
        unneeded: "skipped",
    }


@run_by(_play)
async def test_an_end_that_a_scheduler_reports_for_a_dead_worker_is_seen(stage: Stage, /) -> None:
    process = stage.start()
    given_up, asked = await stage.submit(2)
    player = await stage.player()
    await player.has(2)
    await process.app.jobs.acancel(asked)
    for envelope in player.envelopes:
        if envelope.id == given_up:
            await player.report(envelope, "failed", by_scheduler=True)
        else:
            await player.report(envelope, "retry", delay=1)
    await stage.pass_by(5)

    assert await _read_ends(stage) == {given_up: "failed", asked: "cancelled"}


@run_by(_play)
async def test_a_reported_end_whose_call_is_a_stored_job_is_delivered_once(stage: Stage, /) -> None:
    stage.start()
    jobs = await stage.submit(2)
    player = await stage.player()
    await player.has(2)
    envelopes = player.envelopes
    await player.finish("failed")
    for envelope in envelopes:
        await player.report(envelope, "failed")
    await stage.pass_by(5)

    assert await _read_ends(stage) == dict.fromkeys(jobs, "failed")


def _define_sent(app: TaskMQ) -> None:
    app.task(name="t", queue="work")(lambda: None)

    @app.on(job("t", state=TERMINAL))
    @app.task(name="react", queue="reactions")
    async def react(ended: JobEnded) -> None: ...


@run_by(partial(play_one, define=_define_sent))
async def test_a_reported_end_whose_call_is_sent_is_left_to_the_worker(stage: Stage, /) -> None:
    stage.start()
    await stage.submit(2)
    player = await stage.player()
    await player.has(2)
    await player.finish("failed")
    await stage.pass_by(5)

    assert await _calls(stage) == []
    assert await stage.broker.stats(["reactions"]) == []


@run_by(_play)
async def test_ends_while_no_scheduler_runs_are_seen_by_the_next_one_once(stage: Stage, /) -> None:
    first = stage.start()
    early, late = await stage.submit(2, held=True)
    await first.app.jobs.acancel(early)
    await until(lambda: stage.database.live == 2)
    await first.kill()

    outsider = stage.start()
    await outsider.stop()
    await stage.pass_by(40)
    third = stage.start()
    await third.app.jobs.acancel(late)
    await stage.pass_by(40)

    assert await _read_ends(stage) == {early: "cancelled", late: "cancelled"}


@run_by(partial(play_one, define=_define_with_broken))
async def test_a_call_that_cannot_be_built_delays_no_other_end(stage: Stage, /) -> None:
    process = stage.start()
    broken, sound = [(await stage.submit(task=task, held=True))[0] for task in ("u", "t")]
    await process.app.jobs.acancel(broken)
    await process.app.jobs.acancel(sound)
    await stage.pass_by(5)

    assert await _read_ends(stage) == {sound: "cancelled"}


@run_by(_play)
async def test_a_look_that_leaves_out_ends_is_logged(stage: Stage, /, caplog: pytest.LogCaptureFixture) -> None:
    process = stage.start()
    (job_id,) = await stage.submit(held=True)
    await process.app.jobs.acancel(job_id)
    (end,) = await stage.store.actions(0, limit=10)

    async def actions(since: int, *, limit: int) -> list[JobAction]:
        return [end] * limit

    vars(process.store)["actions"] = actions
    await until(lambda: "more than 100000 events of jobs since the last look" in caplog.text)

    assert await _read_ends(stage) == {job_id: "cancelled"}
