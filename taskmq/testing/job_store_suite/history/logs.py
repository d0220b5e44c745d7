"""Tests of log lines."""

import asyncio
from typing import Any, Final

from taskmq.contracts.jobs import DispatchedJob
from taskmq.model.history.logs import LogFilter, RunLine, RunLog, StoredLine
from taskmq.testing.job_store_suite.driver import JobDriver, forged_token, new_id, report
from taskmq.testing.job_store_suite.history.kit import HistoryCase, history_of
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case

_AT: Final = 1_700_000_000_000


def _log(job: DispatchedJob, *messages: str, level: int = 20, **fields: Any) -> RunLog:
    lines = [RunLine(_AT + place, level, "shop", message) for place, message in enumerate(messages)]
    given: dict[str, Any] = {"id": job.id, "token": job.token, "lines": lines, **fields}
    return RunLog(**given)


def _messages(lines: list[StoredLine]) -> list[str]:
    return [line.message for line in lines]


class LogCases(HistoryCase):
    """Every guarantee of `LogStore`."""

    async def _running(self, driver: JobDriver, **fields: Any) -> DispatchedJob:
        return await driver.dispatch_new(**fields)

    @case
    async def test_a_line_is_read_back_with_the_fields_the_store_adds(self) -> None:
        driver = self.driver()
        job = await self._running(driver, tenant="acme")
        log = RunLog(
            id=job.id,
            token=job.token,
            attempt=2,
            worker="host:1 ☂",
            first=3,
            lines=[RunLine(_AT, 45, "shop.mail ☂", "sent\n☂ 100%_!"), RunLine(_AT + 1, 5, "", "")],
        )

        assert await history_of(driver).logs.add([log]) == 2

        last, first = (await self.history().logs.page(LogFilter(job=job.id))).lines
        assert (first.at, first.level, first.logger, first.message) == (_AT, 40, "shop.mail ☂", "sent\n☂ 100%_!")
        assert (first.job, first.attempt, first.worker) == (job.id, 2, "host:1 ☂")
        assert (first.tenant, first.task, first.queue) == ("acme", "send_mail", "mail")
        assert (last.level, last.number > first.number) == (10, True)

    @case
    async def test_lines_are_stored_only_with_the_token_of_a_current_run(self) -> None:
        driver = self.driver()
        logs = history_of(driver).logs
        job = await self._running(driver)
        waiting = await driver.submit(due=60_000)

        refused = [
            _log(job, "foreign", token=forged_token(job.token)),
            _log(job, "unknown", id=new_id(_AT)),
            _log(job, "no id", id="x"),
            _log(job, "not dispatched", id=waiting.id, token=waiting.token),
        ]

        assert await logs.add(refused) == 0
        assert await logs.add([]) == await logs.add([_log(job)]) == 0
        assert await logs.add([_log(job, "one")]) == 1
        await driver.schedulers.apply([report(job, "succeeded")])
        assert await logs.add([_log(job, "late", first=1)]) == 0
        assert _messages((await logs.page(LogFilter())).lines) == ["one"]

    @case
    async def test_a_duplicate_message_adds_no_lines(self) -> None:
        driver, other = self.driver(), self.history()
        job = await self._running(driver)
        log = _log(job, *map(str, range(150)))

        added = await asyncio.gather(history_of(driver).logs.add([log, log]), other.logs.add([log]))

        assert sum(added) == 150
        assert await other.logs.add([log]) == 0

    @case
    async def test_a_log_can_be_followed_line_by_line(self) -> None:
        driver = self.driver()
        logs = history_of(driver).logs
        job = await self._running(driver)
        await logs.add([_log(job, "a", "b", "c")])
        which = LogFilter(job=job.id)

        first = await logs.page(which, limit=2, oldest_first=True)
        second = await logs.page(which, after=first.after, oldest_first=True)
        nothing = await logs.page(which, after=second.after, oldest_first=True)
        await logs.add([_log(job, "d", first=3)])
        third = await logs.page(which, after=nothing.after, oldest_first=True)

        found = [_messages(page.lines) for page in (first, second, nothing, third)]
        assert found == [["a", "b"], ["c"], [], ["d"]]
        assert nothing.after == second.after
        assert (await logs.page(LogFilter(job=new_id(_AT)), oldest_first=True)).after is None

    @case
    async def test_lines_are_searched_newest_first_in_pages(self) -> None:
        driver = self.driver()
        logs = history_of(driver).logs
        job = await self._running(driver, tenant="acme")
        await logs.add([_log(job, "one", "TWO 100%", "Three Ä"), _log(job, "bad", level=40, first=9, attempt=2)])

        page = await logs.page(LogFilter(), limit=3)
        rest = await logs.page(LogFilter(), after=page.after, limit=3)

        assert (_messages(page.lines), _messages(rest.lines), rest.after) == (
            ["bad", "Three Ä", "TWO 100%"],
            ["one"],
            None,
        )
        for which, expected in (
            (LogFilter(tenant="acme"), 4),
            (LogFilter(tenant=""), 0),
            (LogFilter(tenant="\0"), 0),
            (LogFilter(task="send_mail"), 4),
            (LogFilter(task="other"), 0),
            (LogFilter(attempt=2), 1),
            (LogFilter(level=40), 1),
            (LogFilter(level=41), 0),
            (LogFilter(since=_AT + 1), 2),
            (LogFilter(until=_AT + 1), 2),
            (LogFilter(text="two 1"), 1),
            (LogFilter(text="%"), 1),
            (LogFilter(text="_"), 0),
            (LogFilter(text="Ä"), 1),
            (LogFilter(text="o", level=20, tenant="acme"), 2),
        ):
            assert len((await logs.page(which)).lines) == expected, which
        searched = await logs.page(LogFilter(text="o"), limit=1)
        assert _messages((await logs.page(LogFilter(text="o"), after=searched.after, limit=1)).lines) == ["one"]

    @case
    async def test_the_log_of_a_run_has_the_lines_of_its_jobs(self) -> None:
        driver = RunDriver(self.store())
        logs = history_of(driver).logs
        other = await self._running(driver)
        await logs.add([_log(other, "other")])
        run = await driver.start({"a": {"task": "t"}, "b": {"task": "t", "each": [1, 2]}})
        await driver.settle()
        jobs = {(await driver.read(job.id)).id: job for job in (await driver.dispatch()).jobs}
        keys = [("a", -1), ("b", 0), ("b", 1)]
        ids = [(await driver.step(run, *key)).job for key in keys]
        await logs.add([_log(jobs[job], f"{name} {child}") for job, (name, child) in zip(ids, keys, strict=True)])

        lines = (await logs.page(LogFilter(run=run), oldest_first=True)).lines
        of_step = await logs.page(LogFilter(run=run, step="b"), limit=1, oldest_first=True)
        rest = await logs.page(LogFilter(run=run, step="b"), after=of_step.after, oldest_first=True)

        assert [(line.run, line.step, line.child, line.job) for line in lines] == [
            (run, *key, job) for key, job in zip(keys, ids, strict=True)
        ]
        assert [*_messages(of_step.lines), *_messages(rest.lines)] == ["b 0", "b 1"]
        assert (await logs.page(LogFilter(run="none"))).lines == []
        (unrelated,) = (await logs.page(LogFilter(job=other.id))).lines
        assert (unrelated.run, unrelated.step, unrelated.child) == ("", "", -1)

    @case
    async def test_lines_are_deleted_by_level_in_batches(self) -> None:
        driver = self.driver()
        logs = history_of(driver).logs
        job = await self._running(driver)
        await logs.add([_log(job, "a", "b", "c"), _log(job, "bad", level=40, first=9)])

        assert await logs.forget(level=20, before=_AT + 2, limit=1) == 1
        assert await logs.forget(level=20, before=_AT + 2) == 1
        assert await logs.forget(level=20, before=_AT + 2) == 0

        assert _messages((await logs.page(LogFilter())).lines) == ["bad", "c"]
