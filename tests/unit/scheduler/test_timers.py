"""Jobs that become due."""

import pytest

from taskmq.contracts.jobs import JobUpdate
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Stage, play, until


@run_by(play)
async def test_jobs_run_at_their_time_and_never_before(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    began = stage.clock.monotonic()
    dues = [1_500, 2_000, 7_003, 7_005, 30_000, 90_000]
    for due in dues:
        await stage.submit(due=START + due)
    late: list[float] = []
    for count, due in enumerate(dues, 1):
        await player.has(count, within=120)
        late.append(stage.clock.since(began) - due / 1000)

    assert all(-1e-6 <= each <= 0.025 for each in late), late


@run_by(play)
async def test_a_job_cancelled_or_changed_in_the_meantime_is_not_dispatched(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    cancelled, moved, plain = await stage.submit(3, due=START + 5_000)
    await stage.pass_by(3)
    await _update(stage, cancelled, after=JobState.CANCELLED, kind="cancel")
    await _update(stage, moved, after=JobState.SCHEDULED, kind="change", due=START + 8_000)
    await stage.pass_by(2.5)
    assert [envelope.id for envelope in player.envelopes] == [plain]

    await stage.pass_by(3)

    assert [envelope.id for envelope in player.envelopes] == [plain, moved]
    assert stage.job(cancelled).state is JobState.CANCELLED


@pytest.mark.nightly("tests/unit/scheduler/test_timers.py::test_jobs_run_at_their_time_and_never_before")
@run_by(play)
async def test_ten_thousand_jobs_of_one_instant_all_run(stage: Stage, /) -> None:
    stage.start()
    await stage.submit(10_000, due=START + 2_000)
    await stage.playing()

    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: 10_000}


@run_by(play)
async def test_an_idle_scheduler_queries_the_store_a_few_times_a_second(stage: Stage, /) -> None:
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    await stage.pass_by(2)
    before = process.store.asked

    await stage.pass_by(10)

    # For each of the eight partitions two polls of lanes, one each of timers and schedules, and 0.6 renewals. For all
    # of them two readings of the clock, two of dependent jobs, and two of the mark that reveals a rolled back store.
    # One in five seconds each for bulks, runs and their timers.
    calls = process.store.asked - before
    assert calls / 10 <= 8 * 4.6 + 2 + 2 + 5 + 0.2


async def _update(stage: Stage, job_id: str, **fields: object) -> None:
    job = stage.job(job_id)
    update = JobUpdate(id=job_id, before=job.state, version=job.version, **fields)  # type: ignore[arg-type]
    assert await stage.store.update(update) is not None
