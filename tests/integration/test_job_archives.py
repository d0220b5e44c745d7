"""Ended jobs are archived in files, read there, and deleted: by day, by kind, of a tenant or a person."""

import asyncio
import contextlib
import gzip
import sqlite3
import uuid
from collections.abc import Callable, Coroutine, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from msgspec.structs import replace

from taskmq import Job, TaskMQ
from taskmq.contracts.history import history_of
from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.contracts.jobs import JobStore
from taskmq.errors import InvalidOption, MalformedMessage, StoreUnavailable
from taskmq.model.history.sent_runs import RecordedRun, RunReport, SentJobFacts
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.units import DAY_MS
from taskmq.operations.retention import KeepRule, archive_days, check_archive, erase_jobs, read_archive, thin_out
from taskmq.scheduler.duties import Duties
from taskmq.testing.job_store_suite.driver import JobDriver, new_id
from taskmq_sql.jobs.partitions import partition_statements
from taskmq_sql.sqlite.jobs import maintenance
from tests.unit.app_kit import new_url

_ANN = Actor(user="ann")
_EPOCH = date(1970, 1, 1).toordinal()


def _with_app(store: str, test: Callable[[TaskMQ, JobDriver], Coroutine[Any, Any, None]]) -> None:
    app = TaskMQ(new_url(), store=store)

    @app.task(name="send_mail", queue="mail")
    async def send_mail(number: int) -> None: ...

    async def main() -> None:
        async with app:
            await test(app, JobDriver(app.sessions.store()))

    asyncio.run(main())


async def _end_jobs(driver: JobDriver, count: int, **fields: Any) -> list[str]:
    jobs = await driver.submit_many(count, queue="ended", **fields)
    for job in (await driver.dispatch(queue="ended")).jobs:
        await driver.expect_accepted(job, "succeeded", result=b"7")
    return [job.id for job in jobs]


async def _age(url: str, ids: list[str], days: int) -> None:
    """Move the ends of the jobs that many days into the past."""
    connection: Any = await asyncpg.connect(url)
    now = await connection.fetchval("select taskmq.now_ms()")
    for statements in partition_statements(now - days * DAY_MS).values():
        for statement in statements:
            await connection.execute(statement)
    await connection.execute(
        "update taskmq.job_history set ended = ended - $2, finished = finished - $2 where id = any($1::uuid[])",
        ids,
        days * DAY_MS,
    )
    await connection.close()


def test_whole_days_are_in_files_before_they_are_dropped(job_store_url: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        old = await _end_jobs(driver, 3)
        await _age(job_store_url, old, 35)
        young = await _end_jobs(driver, 2)
        kept = {job_id: (await store.list_jobs(JobFilter(ids=(job_id,)))).jobs[0] for job_id in old}

        (written,) = await archive_days(store, tmp_path, keep_days=30)
        (again,) = await archive_days(store, tmp_path, keep_days=30, prune=True)

        assert (written.jobs, written.is_new, again.is_new) == (3, True, False)
        found = {one.job.id: one.job for one in read_archive(Path(written.file))}
        assert {job_id: (job.version, job.finished) for job_id, job in found.items()} == {
            job_id: (job.version, job.finished) for job_id, job in kept.items()
        }
        assert {job.result for job in found.values()} == {b"7"}
        assert [one.name for one in tmp_path.iterdir()] == [f"jobs-{written.day}.ndjson.gz"]
        assert {job.id for job in (await store.list_jobs()).jobs} == set(young)
        assert await archive_days(store, tmp_path, keep_days=30, prune=True) == []

    _with_app(job_store_url, test)


def test_no_day_is_dropped_while_a_file_is_incomplete(job_store_url: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        await _age(job_store_url, await _end_jobs(driver, 3), 35)
        (written,) = await archive_days(store, tmp_path, keep_days=30)
        path = Path(written.file)
        whole = path.read_bytes()
        lines = gzip.decompress(whole).splitlines(keepends=True)
        damaged = {
            "cut off": whole[:-20],
            "no gzip": b"{}",
            "one job less": gzip.compress(b"".join([*lines[:2], *lines[3:]])),
            "no end": gzip.compress(b"".join(lines[:-1])),
            "another job": gzip.compress(b"".join([*lines[:2], lines[1], *lines[3:]])),
            "two ends": gzip.compress(b"".join([*lines, lines[-1]])),
            "later version of taskmq": gzip.compress(b"".join([lines[0].replace(b":1,", b":2,"), *lines[1:]])),
        }

        for what, content in damaged.items():
            path.write_bytes(content)
            with pytest.raises(MalformedMessage, match=path.name):
                check_archive(path)
            with pytest.raises(MalformedMessage):
                await archive_days(store, tmp_path, keep_days=30, prune=True)
            assert await store.count_jobs() == 3, what

    _with_app(job_store_url, test)


def test_a_stopped_archive_is_started_again(tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        await _end_jobs(driver, 3)
        stopping: Any = _Stopping(app.sessions.store())
        folder = tmp_path / "kept"

        with pytest.raises(StoreUnavailable):
            await archive_days(stopping, folder, keep_days=-1)
        # Written every hour they would fill the disk.
        assert list(folder.iterdir()) == []
        (day, *_) = await stopping.ended_days()
        killed = folder / f"jobs-{date.fromordinal(_EPOCH + day)}.ndjson.0a1b2c3d.part"
        killed.write_bytes(b"of one who was killed")
        written = await archive_days(app.sessions.store(), folder, keep_days=-1)

        # Midnight may have passed between them.
        assert sum(one.jobs for one in written) == 3
        assert {one.suffix for one in folder.iterdir()} == {".gz"}

    _with_app(f"sqlite:///{tmp_path}/jobs.db", test)


def test_a_file_deletes_no_job_of_an_unarchived_day(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store: Any = app.sessions.store()
        ids = await _end_jobs(driver, 30)
        now = await store.now_ms()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for number, job_id in enumerate(ids):
                # Each hour before the one five days ago.
                at = now - 5 * DAY_MS - number * 3_600_000
                raw = bytes.fromhex(job_id.replace("-", ""))
                connection.execute(
                    "UPDATE job_history SET finished = ?, id = ? WHERE id = ?", (at, at.to_bytes(6) + raw[6:], raw)
                )
            connection.commit()

        days = await archive_days(store, tmp_path / "kept", keep_days=5, prune=True)

        archived = sum(one.jobs for one in days)
        assert 0 < archived < len(ids)
        assert await store.count_jobs() == len(ids) - archived

    _with_app(f"sqlite:///{path}", test)


def test_days_of_a_file_are_found_and_read_by_their_index(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store: Any = app.sessions.store()
        ids = await _end_jobs(driver, 4)
        today = await store.now_ms() // DAY_MS
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for job_id, age in zip(ids, (40, 7, 7, 0), strict=True):
                raw = bytes.fromhex(job_id.replace("-", ""))
                at = (today - age) * DAY_MS + 5
                connection.execute("UPDATE job_history SET finished = ? WHERE id = ?", (at, raw))
            connection.commit()
            plans = [
                connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
                for statement, values in ((maintenance._ENDED, (0, 1, b"", 1)), (maintenance._DAYS, (DAY_MS,)))  # pyright: ignore[reportPrivateUsage]
            ]

        assert await store.ended_days() == [today - 40, today - 7, today]
        assert [one.job.id for one in await store.ended_on(today - 7)] == ids[1:3]
        for steps in plans:
            looks = [step[3] for step in steps if "job_history" in step[3]]
            assert looks
            assert all("job_history_finished" in look for look in looks), looks

    _with_app(f"sqlite:///{path}", test)


async def _submitted_before(url: str, ids: list[str], days: int) -> list[str]:
    """Move the submissions of the jobs that many days into the past, including the time in their ids; return the new
    ids.
    """
    earlier = [str(uuid.UUID(int=uuid.UUID(job_id).int - (days * DAY_MS << 80))) for job_id in ids]
    connection: Any = await asyncpg.connect(url)
    statement = "update taskmq.job_history set id = $2 where id = $1"
    await connection.executemany(statement, zip(ids, earlier, strict=True))
    await connection.close()
    return earlier


async def _turn(store: JobStore, archive: Path | None, keep: Sequence[KeepRule] = ()) -> None:
    """Run the hourly upkeep of a scheduler."""
    await Duties(store, me="scheduler", archive=archive, keep=keep)._work()  # pyright: ignore[reportPrivateUsage]
    lease = await store.dispatching.leases.find("duties")
    assert lease is not None
    await store.dispatching.leases.release("duties", token=lease.token)


@pytest.mark.nightly("tests/integration/test_store_prune.py::test_a_database_deletes_whole_days")
def test_a_scheduler_keeps_jobs_for_the_configured_time(job_store_url: str) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        old, middle, young = [await _end_jobs(driver, count) for count in (2, 3, 1)]
        await _age(job_store_url, old, 35)
        await _age(job_store_url, middle, 12)
        middle = sorted(await _submitted_before(job_store_url, middle, 12))

        await _turn(store, None, [KeepRule.read("90d")])
        assert {job.id for job in (await store.list_jobs()).jobs} == {*old, *middle, *young}
        await _turn(store, None, [KeepRule.read("90d"), KeepRule.read("30d")])
        assert {job.id for job in (await store.list_jobs()).jobs} == {*middle, *young}
        await _turn(store, None, [KeepRule.read("90d"), KeepRule.read("10d status:failed")])
        await _turn(store, None, [KeepRule.read("last:2 status:succeeded")])
        assert {job.id for job in (await store.list_jobs()).jobs} == {middle[-1], *young}
        await _turn(store, None, [KeepRule.read("10d status:succeeded")])
        assert {job.id for job in (await store.list_jobs()).jobs} == {*young}

    _with_app(job_store_url, test)


@pytest.mark.parametrize(
    "text", ["", "3 cats", "12h", "last:5", "last:-1 task:a", "7d no such:filter", "12h via:broker", "last:5 via:any"]
)
def test_an_invalid_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        KeepRule.read(text)


def test_a_rule_that_deletes_unarchived_jobs_is_refused(job_store_url: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, _: JobDriver) -> None:
        with pytest.raises(InvalidOption, match="3 days"):
            await _turn(app.sessions.store(), tmp_path, [KeepRule.read("2d")])

    _with_app(job_store_url, test)


def test_a_scheduler_archives_before_it_deletes(job_store_url: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        old, young, new = [await _end_jobs(driver, count) for count in (3, 2, 1)]
        await _age(job_store_url, old, 35)
        await _age(job_store_url, young, 12)

        await _turn(store, tmp_path / "kept")
        await _turn(store, tmp_path / "kept")

        files = sorted((tmp_path / "kept").iterdir())
        assert [{one.job.id for one in read_archive(path)} for path in files] == [set(old), set(young)]
        assert {job.id for job in (await store.list_jobs()).jobs} == {*young, *new}

    _with_app(job_store_url, test)


def test_a_scheduler_deletes_nothing_that_it_cannot_archive(
    job_store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        await _age(job_store_url, await _end_jobs(driver, 3), 35)
        (tmp_path / "full").write_text("no folder")

        await _turn(store, tmp_path / "full")
        assert await store.count_jobs() == 3
        assert "stay in the store, next try in an hour" in caplog.text
        # Without an archive they are deleted as usual.
        await _turn(store, None)
        assert await store.count_jobs() == 0

    _with_app(job_store_url, test)


class _Stopping:
    """A store that is lost after the first job."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.address = store.address
        self.now_ms, self.ended_days = store.now_ms, store.ended_days
        self.forget_ended, self.forget_tenant = store.forget_ended, store.forget_tenant

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> Any:
        if after is not None:
            raise StoreUnavailable("it is gone")
        return await self._store.ended_on(day, limit=min(1, limit))


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_the_jobs_of_a_person_are_erased_and_the_erasure_is_audited(
    kind: str, job_store_url: str, tmp_path: Path
) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store = app.sessions.store()
        person: dict[str, Any] = {"labels": {"customer": "person 17"}, "tenant": "acme"}
        first: Job[Any] = await app.jobs.asubmit("send_mail", 1, delay="1h", **person)
        waiting: Job[Any] = await app.jobs.asubmit("send_mail", 2, depends_on=[first], **person)
        behind: Job[Any] = await app.jobs.asubmit("send_mail", 3, tenant="acme", depends_on=[waiting])
        await app.jobs.asubmit("send_mail", 4, queue="running", **person)
        (running,) = (await driver.dispatch(queue="running")).jobs
        which = JobFilter(tenant="acme", labels=(("customer", "person 17"),))

        erased = [await erase_jobs(app, which, by=_ANN)]
        await driver.expect_accepted(running, "cancelled")
        erased.append(await erase_jobs(app, which, by=_ANN))

        assert [(each.jobs, each.left) for each in erased] == [(2, 1), (1, 0)]
        assert [job.id for job in (await store.list_jobs()).jobs] == [behind.id]
        assert await driver.state(behind.id) is JobState.UPSTREAM_FAILED
        page = await store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(), limit=10)
        entries = [entry for entry in page.entries if entry.action == "job.erase"]
        assert len(entries) == 2
        assert "person 17" not in str(entries)

    _with_app(job_store_url if kind == "postgresql" else f"sqlite:///{tmp_path}/jobs.db", test)


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_records_of_sent_jobs_are_erased_by_a_filter(kind: str, job_store_url: str, tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        sent = history_of(app.sessions.store()).sent_jobs
        running = [_sent_run("send_mail", JobState.RUNNING), _sent_run("report", JobState.RUNNING)]
        await sent.add([*running, _sent_run("send_mail"), _sent_run("report")])
        await _end_jobs(driver, 1, task="send_mail")
        which = JobFilter(tasks=("send_mail",))

        stored = await erase_jobs(app, replace(which, via="store"), by=_ANN)
        both = await erase_jobs(app, which, by=_ANN)
        await sent.add([RunReport(running[0].job, replace(running[0].run, ended=2_000, state=JobState.SUCCEEDED))])
        last = await erase_jobs(app, which, by=_ANN)

        assert [(each.jobs, each.left) for each in (stored, both, last)] == [(1, 0), (1, 1), (1, 0)]
        assert [job.task for job in (await sent.page(JobFilter())).jobs] == ["report", "report"]
        assert (await erase_jobs(app, JobFilter(via="broker"), by=_ANN)).jobs == 1

    _with_app(job_store_url if kind == "postgresql" else f"sqlite:///{tmp_path}/jobs.db", test)


def _sent_run(task: str, state: JobState = JobState.SUCCEEDED) -> RunReport:
    job = SentJobFacts(name=new_id(1_000), task=task, queue="mails", sent=1_000)
    ended = None if state is JobState.RUNNING else 1_500
    return RunReport(job, RecordedRun(worker="w", started=1_001, ended=ended, state=state))


def test_all_data_of_a_tenant_is_erased(tmp_path: Path) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        for tenant in ("acme", "other"):
            await app.definitions.aput("monthly", "send_mail", args=[1], tenant=tenant)
            await app.jobs.asubmit("monthly", tenant=tenant)

        erased = await erase_jobs(app, JobFilter(tenant="acme"), by=_ANN, everything_of="acme")

        assert (erased.jobs, erased.left) == (1, 0)
        definitions = driver.store.definitions  # type: ignore[attr-defined]  # this store has them
        assert await definitions.versions("acme", "monthly") == []
        assert len(await definitions.versions("other", "monthly")) == 1
        assert {job.tenant for job in (await app.sessions.store().list_jobs()).jobs} == {"other"}

    _with_app(f"sqlite:///{tmp_path}/jobs.db", test)


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_some_jobs_are_kept_for_a_shorter_time_or_in_smaller_number(
    kind: str, job_store_url: str, tmp_path: Path
) -> None:
    async def test(app: TaskMQ, driver: JobDriver) -> None:
        store: JobStore = app.sessions.store()
        acme = await _end_jobs(driver, 5, tenant="acme")
        await _end_jobs(driver, 3, tenant="other")
        live = await driver.submit(tenant="acme")
        queued = JobFilter(tenant="acme", states=frozenset({JobState.QUEUED}))

        with pytest.raises(InvalidOption, match="say what to keep"):
            await thin_out(app.sessions.store(), JobFilter(tenant="acme"))
        assert await thin_out(app.sessions.store(), JobFilter(tenant="acme"), older_than=DAY_MS) == 0
        assert await thin_out(app.sessions.store(), JobFilter(tenant="acme"), keep_last=2) == 3
        assert await thin_out(app.sessions.store(), queued, keep_last=0) == 0
        left = {job.id for job in (await store.list_jobs(JobFilter(tenant="acme"))).jobs}
        assert left == {live.id, *sorted(acme)[-2:]}
        assert await thin_out(app.sessions.store(), JobFilter(tenant="acme"), older_than=-DAY_MS) == 2
        assert await store.count_jobs() == 4

    _with_app(job_store_url if kind == "postgresql" else f"sqlite:///{tmp_path}/jobs.db", test)
