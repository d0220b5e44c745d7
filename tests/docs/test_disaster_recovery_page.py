"""docs/disaster-recovery.md: its commands under load, with a complete standby and with one that lags.

Each run starts two PostgreSQL servers. Measurements are printed: `pytest -s`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from taskmq.errors import StoreUnavailable, StoreWentBack
from taskmq.model.states import JobState
from tests.docs.blocks import ROOT
from tests.docs.page_shell import PageShell
from tests.integration.scheduler_stage import Database, Process, Stage, open_stage
from tests.servers import PostgreSQL
from tests.servers.waiting import until

_PAGE = ROOT / "docs" / "disaster-recovery.md"
_JOBS = 50
_PATIENCE = 60

pytestmark = [pytest.mark.campaign, pytest.mark.slow, pytest.mark.timeout(180)]


class _Submitter:
    """Submits one job after the other, and continues after an outage of the store.

    Attributes:
        confirmed: ids of the jobs that the store has confirmed, in order.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.confirmed: list[str] = []
        self.task = asyncio.create_task(self._submit())

    async def _submit(self) -> None:
        while True:
            with suppress(StoreUnavailable):
                self.confirmed += await self._stage.submit(1)
            await asyncio.sleep(0.002)

    async def more(self, count: int = _JOBS) -> None:
        """Wait until that many more were confirmed."""
        enough = len(self.confirmed) + count
        await until(lambda: len(self.confirmed) >= enough)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class _Pair:
    """A server and its standby."""

    def __init__(self, first: PostgreSQL, second: PostgreSQL) -> None:
        self.first, self.second = first, second
        url = f"postgresql://postgres@127.0.0.1:{first.port},127.0.0.1:{second.port}/postgres"
        self.url = f"{url}?target_session_attrs=read-write"
        self.database = Database(self.url, second.sql, "", "select count(*) from taskmq.dispatch_batch")

    async def until(self, server: PostgreSQL, statement: str, expected: str) -> None:
        await until(lambda: server.sql(statement) == expected, statement)

    async def cut(self) -> None:
        """Stop the replication to the second server."""
        self.second.sql("alter system set primary_conninfo = ''")
        self.second.sql("select pg_reload_conf()")
        await self.until(self.first, "select count(*) from pg_stat_replication", "0")


@pytest.fixture
def shell(tmp_path: Path) -> PageShell:
    return PageShell(_PAGE, tmp_path)


def _with_pair(shell: PageShell, folder: Path, test: Callable[[_Pair, Stage], Awaitable[None]]) -> None:
    with PostgreSQL() as first:
        asyncio.run(Database(first.url, first.sql, "", "").upgrade())
        shell.variables["PRIMARY"] = first.url
        shell.run("pg_basebackup")
        with PostgreSQL(base=folder / "standby") as second:
            pair = _Pair(first, second)
            shell.variables |= {"STANDBY": second.url, "TASKMQ_STORE": pair.url}

            async def main() -> None:
                await pair.until(first, "select state from pg_stat_replication", "streaming")
                async with open_stage(pair.database) as stage:
                    await stage.consume()
                    await test(pair, stage)

            asyncio.run(main())


async def _fail_over(pair: _Pair, shell: PageShell, submitter: _Submitter) -> tuple[int, float]:
    """Kill the first server and promote the second; return the number of confirms before that, and the outage."""
    pair.first.kill()
    began = time.monotonic()
    before = len(submitter.confirmed)
    assert (await asyncio.to_thread(shell.run, 'psql "$STANDBY"')).strip() == "t"
    promoted = time.monotonic() - began
    await submitter.more(1)
    outage = time.monotonic() - began
    print(f"promoted after {promoted:.2f} s, the next job confirmed after {outage:.2f} s")
    return before, outage


async def _wait_for_ends(stage: Stage, scheduler: Process, ids: list[str]) -> None:
    jobs = await stage.until_ended(ids)
    assert len(jobs) == len(ids)
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    await scheduler.stop()


def test_a_synchronous_standby_has_every_confirmed_job_and_schedulers_continue(
    shell: PageShell, tmp_path: Path
) -> None:
    async def test(pair: _Pair, stage: Stage) -> None:
        shell.run('psql "$PRIMARY" -c "alter system')
        await pair.until(pair.first, "select sync_state from pg_stat_replication", "sync")
        assert shell.run('psql "$PRIMARY" -Atc').startswith("sync|")
        scheduler, submitter = stage.start(), _Submitter(stage)
        await submitter.more()

        await _fail_over(pair, shell, submitter)
        # Otherwise it waits for its own standby.
        pair.second.sql("alter system set synchronous_standby_names = ''")
        pair.second.sql("select pg_reload_conf()")
        await submitter.more()
        await submitter.stop()

        assert not scheduler.task.done()
        shell.run("taskmq store check")
        await _wait_for_ends(stage, scheduler, submitter.confirmed)

    _with_pair(shell, tmp_path, test)


def test_jobs_missing_from_a_standby_are_lost_and_schedulers_refuse_it(shell: PageShell, tmp_path: Path) -> None:
    async def test(pair: _Pair, stage: Stage) -> None:
        assert shell.run('psql "$PRIMARY" -Atc').startswith("async|")
        refusing, submitter = stage.start(), _Submitter(stage)
        await submitter.more()
        asked = len(submitter.confirmed)
        await pair.cut()
        cut, began = len(submitter.confirmed), time.monotonic()
        # More than a second: a loss of that length is noticed.
        while time.monotonic() - began < 3:
            await submitter.more(1)

        before, _ = await _fail_over(pair, shell, submitter)
        await submitter.more()
        await submitter.stop()

        with pytest.raises(StoreWentBack, match="lost transactions"):
            await asyncio.wait_for(refusing.task, _PATIENCE)
        there = {job.id for job in await stage.read(submitter.confirmed)}
        lost = [job_id for job_id in submitter.confirmed if job_id not in there]
        print(f"{len(lost)} of {len(submitter.confirmed)} confirmed jobs are lost")
        # One may have been confirmed during the cut, and one while the server was killed.
        assert set(submitter.confirmed[cut + 1 : before]) <= set(lost) <= set(submitter.confirmed[: before + 1])
        # The cut takes a while, in which the submitter continues.
        assert len(lost) <= before - asked + _JOBS
        # The remaining jobs: first held, then released, by schedulers started after that.
        shell.run("taskmq store check")
        shell.run("taskmq bulk begin hold")
        scheduler = stage.start()
        shell.run("taskmq bulk begin release")
        await _wait_for_ends(stage, scheduler, sorted(there))

    _with_pair(shell, tmp_path, test)
