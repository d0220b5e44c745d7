"""docs/backup.md: its commands, and its statements about jobs that have run since."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq.cli.exits import exit_code
from taskmq.errors import StoreWentBack
from taskmq.model.states import JobState
from tests.cli.kit import PATIENCE, Started
from tests.docs.blocks import ROOT
from tests.docs.page_shell import PageShell
from tests.integration.scheduler_stage import JOBS, Database, Stage, file_database, open_stage, postgres_database
from tests.servers import PostgreSQL
from tests.servers.waiting import eventually, until

_PAGE = ROOT / "docs" / "backup.md"


async def _happens_since(stage: Stage, back_up: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Submit jobs before and after the backup; return their ids. All are dispatched, and all but one have run."""
    await stage.consume()
    early = await stage.submit()
    back_up()
    scheduler = stage.start()
    late = await stage.submit(2)
    await stage.until(lambda: len(stage.deliveries) == JOBS + 2)
    await scheduler.stop()
    # The reports wait at the broker.
    await stage.finish(but=early[:1])
    return early, late


async def _count_parked(stage: Stage) -> int:
    return sum([each.ready for each in await stage.broker.stats(["taskmq.parking"])])


def _put_in_place_of(server: PostgreSQL, url: str, other: str) -> None:
    """Give the other database the name of the first one, which is dropped; its clients reconnect."""
    name, new = (urlsplit(each).path.removeprefix("/") for each in (url, other))
    server.drop_database(url)
    server.sql(f'alter database "{new}" rename to "{name}"')


@pytest.mark.nightly("tests/conformance/test_job_stores.py")
def test_jobs_run_since_a_dump_end_once_and_none_runs_again(
    postgres_server: PostgreSQL, job_store_url: str, tmp_path: Path
) -> None:
    restored = postgres_server.create_database()
    shell = PageShell(_PAGE, tmp_path, TASKMQ_STORE=job_store_url, RESTORED=restored)

    async def main() -> None:
        async with open_stage(postgres_database(postgres_server, job_store_url)) as stage:
            early, _ = await _happens_since(stage, lambda: shell.run("pg_dump"))
            shell.run("pg_restore")
            shell.run("taskmq store check")
            shell.variables["TASKMQ_STORE"] = restored
            await stage.move_to(postgres_database(postgres_server, restored))
            shell.run("taskmq bulk begin hold")
            scheduler = stage.start()

            jobs = await stage.until_ended(early)

            assert {job.state for job in jobs} == {JobState.SUCCEEDED}
            for job_id in early:
                kinds = [event.kind for event in await stage.store.events(job_id)]
                assert kinds == ["hold", "unknown_attempt"]

            async def two_are_parked() -> bool:
                return await _count_parked(stage) >= 2

            # No invitation arrived after the restore; an operator has to check later submissions.
            assert len(stage.invitations) == JOBS + 2
            await until(two_are_parked)
            shell.run("taskmq bulk begin release")
            await scheduler.stop()

    asyncio.run(main())
    postgres_server.drop_database(restored)


@pytest.mark.nightly("tests/cli/test_services.py::test_a_scheduler_stops_with_6_on_a_rolled_back_store")
def test_a_scheduler_on_a_restored_dump_ends_with_6_and_a_remedy(
    postgres_server: PostgreSQL, job_store_url: str, tmp_path: Path
) -> None:
    restored = postgres_server.create_database()
    shell = PageShell(_PAGE, tmp_path, TASKMQ_STORE=job_store_url, RESTORED=restored)
    mark = "select coalesce(max(note::int), 0) from taskmq.lease where key like 'mark:%'"

    def count_confirmed() -> int:
        return int(postgres_server.sql(mark, url=job_store_url))

    with Started(
        tmp_path, "--url", "memory://restored", "scheduler", "shop:app", env={"TASKMQ_STORE": job_store_url}
    ) as scheduler:
        eventually(lambda: count_confirmed() >= 1, "a mark that was confirmed", within=PATIENCE)
        shell.run("pg_dump")
        shell.run("pg_restore")
        kept = int(postgres_server.sql(mark, url=restored))
        eventually(lambda: count_confirmed() > kept + 1, "marks that the dump has not got", within=PATIENCE)
        _put_in_place_of(postgres_server, job_store_url, restored)

        assert scheduler.process.wait(PATIENCE.total_seconds()) == exit_code(StoreWentBack("")) == 6

    assert f"lost transactions: it has mark {kept} of this scheduler" in scheduler.said
    assert "docs/disaster-recovery.md says what to do" in scheduler.said


@pytest.mark.real_time
async def test_jobs_of_a_restored_file_run_again_and_say_so_unless_they_are_held(tmp_path: Path) -> None:
    shell = PageShell(_PAGE, tmp_path, TASKMQ_STORE=f"sqlite:///{tmp_path}/jobs.db")

    async with open_stage(file_database(tmp_path / "jobs.db")) as stage:
        early, _ = await _happens_since(stage, lambda: shell.run("python -c"))
        await stage.move_to(file_database(tmp_path / "copy.db"))
        scheduler = stage.start()

        jobs = await stage.until_ended(early)
        await stage.until(lambda: stage.database.sql(stage.database.batches) == "0")

        assert {job.state for job in jobs} == {JobState.SUCCEEDED}
        for job_id in early:
            runs = sum(each.id == job_id for each in stage.invitations)
            kinds = [event.kind for event in await stage.store.events(job_id)]
            # Its report was first, or it ran twice: both are reported.
            assert kinds == ["unknown_attempt"]
            assert runs in (1, 2)
        await scheduler.stop()


@pytest.mark.campaign
def test_a_base_backup_is_a_separate_store(tmp_path: Path) -> None:
    async def submit(database: Database) -> list[str]:
        async with open_stage(database) as stage:
            return await stage.submit()

    async def run(database: Database, ids: list[str]) -> None:
        async with open_stage(database) as stage:
            await stage.consume()
            scheduler = stage.start()
            jobs = await stage.until_ended(ids)
            assert {job.state for job in jobs} == {JobState.SUCCEEDED}
            await scheduler.stop()

    with PostgreSQL() as first:
        database = postgres_database(first, first.url)
        asyncio.run(database.upgrade())
        ids = asyncio.run(submit(database))
        PageShell(_PAGE, tmp_path, TASKMQ_STORE=first.url).run("pg_basebackup")
        first.kill()
        with PostgreSQL(base=tmp_path / "base") as second:
            assert urlsplit(second.url).port != urlsplit(database.url).port
            asyncio.run(run(postgres_database(second, second.url), ids))


@pytest.mark.real_time
@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(180)
async def test_jobs_with_purged_messages_are_dispatched_again(
    postgres_server: PostgreSQL, job_store_url: str
) -> None:
    database = postgres_database(postgres_server, job_store_url)

    async with open_stage(database) as stage:
        scheduler = stage.start()
        ids = await stage.submit()
        await stage.until(lambda: database.sql(database.confirmed) == "1")
        assert await stage.broker.purge("work.jobs") == JOBS
        await stage.consume()
        # As if five minutes had passed.
        database.sql("update taskmq.job set dispatched = dispatched - 360000")
        database.sql("update taskmq.dispatch_batch set at = at - 360000")

        await until(lambda: len(stage.deliveries) >= JOBS, within=timedelta(minutes=2))
        jobs = await stage.until_ended(ids)

        assert {(job.state, job.token >> 32, job.attempt) for job in jobs} == {(JobState.SUCCEEDED, 2, 1)}
        for job_id in ids:
            assert [event.kind for event in await stage.store.events(job_id)] == ["undispatched"]
        await scheduler.stop()
