"""Jobs that their code holds are released once their workers run another version of the app."""

from taskmq.contracts.identity import AuditFilter
from taskmq.model.history.suspensions import MISMATCH
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Stage, play_one, until

_WHY = ErrorRecord(type_name=MISMATCH, message="its calls differ")


async def _beat(stage: Stage, seconds: int, *versions: str) -> None:
    """Let workers of these versions report for so long."""
    for _ in range(seconds // 10):
        for version in versions:
            stage.worker_says(name=f"w{version}", app_version=version)
        await stage.pass_by(10)


async def _hold(stage: Stage, player: Player, job_id: str, version: str) -> None:
    await player.has(1)
    await player.finish("held", version=version, error=_WHY)
    await until(lambda: stage.job(job_id).state is JobState.HELD)


async def _releases(stage: Stage, job_id: str) -> list[tuple[str, str]]:
    return [(each.by, each.note) for each in await stage.store.events(job_id) if each.kind == "release"]


@run_by(play_one)
async def test_a_job_is_released_once_no_worker_runs_the_version_that_held_it(stage: Stage, /) -> None:
    stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await _hold(stage, player, job_id, "2")

    await _beat(stage, 60, "2", "3")
    assert stage.job(job_id).state is JobState.HELD
    await _beat(stage, 60, "3")
    await _hold(stage, player, job_id, "3")
    await _beat(stage, 60, "3")
    await _beat(stage, 60, "2")

    assert await _releases(stage, job_id) == [("scheduler", "workers run version 3")]
    assert stage.job(job_id).state is JobState.HELD
    page = await stage.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(subject=job_id))
    assert [each.action for each in page.entries] == ["job.release"]
    await _beat(stage, 60, "4")
    await player.has(1)


@run_by(play_one)
async def test_two_schedulers_release_a_job_once(stage: Stage, /) -> None:
    stage.start()
    stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await _hold(stage, player, job_id, "2")

    await _beat(stage, 60, "3")
    await player.finish()
    await stage.all_ended()

    assert await _releases(stage, job_id) == [("scheduler", "workers run version 3")]


@run_by(play_one)
async def test_a_job_that_an_operator_holds_stays_held_whatever_its_workers_run(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await _hold(stage, player, job_id, "2")
    await process.app.jobs.arelease(stage.job(job_id))
    await player.has(1)
    await player.finish("snoozed", delay=3_600_000)
    await until(lambda: stage.job(job_id).state is JobState.SCHEDULED)
    await process.app.jobs.ahold(stage.job(job_id), by="ann")

    await _beat(stage, 60, "3")

    assert stage.job(job_id).state is JobState.HELD
    assert len(await _releases(stage, job_id)) == 1


@run_by(play_one)
async def test_without_a_version_a_held_job_waits_for_its_operator(stage: Stage, /) -> None:
    stage.start()
    known, unknown = await stage.submit(2)
    player = await stage.player()
    await player.has(2)
    for job_id, version in ((known, "2"), (unknown, "")):
        (envelope,) = [one for one in player.envelopes if one.store is not None and one.store.id == job_id]
        await player.report(envelope, "held", version=version, error=_WHY)
    await until(lambda: {stage.job(each).state for each in (known, unknown)} == {JobState.HELD})

    await _beat(stage, 60, "")
    assert stage.job(known).state is JobState.HELD
    await _beat(stage, 60, "", "3")

    assert stage.job(known).state is not JobState.HELD
    assert stage.job(unknown).state is JobState.HELD


@run_by(play_one)
async def test_held_jobs_are_released_after_an_outage_of_the_store(stage: Stage, /) -> None:
    process = stage.start()
    (job_id,) = await stage.submit()
    player = await stage.player()
    await _hold(stage, player, job_id, "2")
    process.store.is_reachable = False
    await _beat(stage, 60, "3")

    process.store.is_reachable = True
    await _beat(stage, 60, "3")

    assert await _releases(stage, job_id) == [("scheduler", "workers run version 3")]
