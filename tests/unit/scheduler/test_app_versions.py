"""Versions of the app: a scheduler records what workers announce."""

import pytest

from taskmq.model.telemetry.app_versions import WorkerVersion
from taskmq.scheduler.history import VersionRecorder, forget_old
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until, worker_event


async def _versions(stage: Stage) -> list[WorkerVersion]:
    return await stage.store.history.versions.of_workers(["a", "b"])


@run_by(play_one)
async def test_a_scheduler_records_the_version_of_each_worker_until_it_is_old(stage: Stage, /) -> None:
    stage.start()
    await stage.pass_by(1)
    stage.worker_says("online", name="a", app_version="1")
    stage.worker_says("beat", name="b")
    stage.worker_says("beat", name="b", app_version="two\nlines")
    await stage.pass_by(2)
    (first,) = await _versions(stage)

    for _ in range(7):
        await stage.pass_by(10)
        stage.worker_says("beat", name="a", app_version="1")
    stage.worker_says("beat", name="b", app_version="2")
    await stage.pass_by(2)
    old, new = await _versions(stage)

    assert (first.worker, first.version, old.first, new.version) == ("a", "1", first.first, "2")
    assert 60_000 <= old.last - old.first <= 80_000
    await forget_old(stage.store, kept_days=0)
    assert [one.version for one in await _versions(stage)] == []


@run_by(play_one)
async def test_a_version_is_recorded_once_the_store_is_available_again(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    await stage.pass_by(1)
    process.store.is_reachable = False
    stage.worker_says("online", name="a", app_version="1")
    await stage.pass_by(5)

    process.store.is_reachable = True
    await until(lambda: bool(stage.database.ask("SELECT 1 FROM worker_version")))

    assert [one.version for one in await _versions(stage)] == ["1"]
    complaints = [each.getMessage() for each in caplog.records if "versions" in each.getMessage()]
    assert len(complaints) == 1
    assert complaints[0].startswith("store unavailable, will record versions of workers later: ")


@run_by(play_one)
async def test_a_scheduler_writes_at_most_ten_thousand_versions_in_a_minute(stage: Stage, /) -> None:
    recorder = VersionRecorder(stage.store.history.versions, stage.clock)

    def count() -> int:
        return int(stage.database.ask("SELECT count(*) FROM worker_version")[0][0])

    async with stage.running(recorder):
        for number in range(10_100):
            recorder.receive(worker_event(name=f"w{number}", app_version="1").status)
        await stage.pass_by(2)
        recorder.receive(worker_event(name="late", app_version="1").status)
        await stage.pass_by(2)
        assert count() == 10_000

        await stage.pass_by(60)
        recorder.receive(worker_event(name="later", app_version="1").status)
        await stage.pass_by(2)

    assert count() == 10_001
