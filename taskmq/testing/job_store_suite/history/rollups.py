"""Tests of statistics by the minute, and failures."""

import asyncio
from typing import Any, Final

from taskmq.contracts.history import FailureFilter, RollupFilter
from taskmq.model.history.rollups import DAY, MINUTE, QUARTER, Rollup, RollupKey, RunFailure
from taskmq.testing.job_store_suite.history.kit import HistoryCase
from taskmq.testing.runner import case

_AT: Final = 28_000_000 * MINUTE
_ALL: Final = RollupFilter(since=0, until=_AT * 2)


def _rollup(minute: int = 0, *, task: str = "t", queue: str = "q", tenant: str = "", ran: float = 0.5) -> Rollup:
    rollup = Rollup(RollupKey(_AT + minute * MINUTE, task, queue, tenant), {"started": 1, "succeeded": 1})
    rollup.waited.add(0.1)
    rollup.ran.add(ran)
    rollup.processor = 0.25
    return rollup


def _failure(job: str, **fields: Any) -> RunFailure:
    given: dict[str, Any] = {"at": _AT, "job": job, "event": "dead", "task": "t", "queue": "q", **fields}
    return RunFailure(**given)


class RollupCases(HistoryCase):
    """Every guarantee of `RollupStore`."""

    @case
    async def test_figures_are_added_to_existing_ones(self) -> None:
        rollups, other = self.history().rollups, self.history().rollups

        await asyncio.gather(*(store.add([_rollup(), _rollup(ran=9.0)]) for store in (rollups, other) * 5))
        await rollups.add([])

        (found,) = await other.rollups(_ALL)
        assert found.outcomes == {"started": 20, "succeeded": 20}
        assert (found.ran.count, found.waited.count) == (20, 20)
        assert abs(found.ran.total - 95.0) < 1e-6
        assert found.processor == 5.0
        assert found.key == _rollup().key

    @case
    async def test_figures_are_found_in_order_by_time_and_names(self) -> None:
        rollups = self.history().rollups
        await rollups.add([_rollup(1, task="☂"), _rollup(1, task="Z"), _rollup(0, queue="other", tenant="acme")])

        assert [(one.key.minute - _AT, one.key.task) for one in await rollups.rollups(_ALL)] == [
            (0, "t"),
            (MINUTE, "Z"),
            (MINUTE, "☂"),
        ]
        for fields, expected in (
            ({"since": _AT + MINUTE}, 2),
            ({"until": _AT + MINUTE}, 1),
            ({"task": "Z"}, 1),
            ({"queue": "other"}, 1),
            ({"tenant": "acme"}, 1),
            ({"tenant": ""}, 2),
            ({"tenants": frozenset({"acme", "absent", "\0"})}, 1),
            ({"tenants": frozenset({"acme", ""})}, 3),
            ({"tenants": frozenset({"\0"})}, 0),
            ({"tenants": frozenset[str]()}, 0),
            ({"task": "\0"}, 0),
        ):
            given: dict[str, Any] = {"since": 0, "until": _AT * 2, **fields}
            assert len(await rollups.rollups(RollupFilter(**given))) == expected, fields
        assert len(await rollups.rollups(_ALL, limit=2)) == 2

    @case
    async def test_figures_are_read_in_pages_after_the_last_one(self) -> None:
        rollups = self.history().rollups
        names = [(minute, task, queue) for minute in (0, 1) for task in ("Z", "a", "☂") for queue in ("q", "r")]
        await rollups.add([_rollup(minute, task=task, queue=queue) for minute, task, queue in names])

        found: list[Rollup] = []
        while page := await rollups.rollups(_ALL, after=found[-1].key if found else None, limit=5):
            found += page

        assert [one.key for one in found] == [one.key for one in await rollups.rollups(_ALL)]
        assert len(found) == len(names)

    @case
    async def test_figures_per_day_sum_the_minutes_of_each_tenant(self) -> None:
        rollups = self.history().rollups
        day = _AT // DAY * DAY
        first = (day - _AT) // MINUTE
        for minute, tenant in ((0, "acme"), (1_439, "acme"), (1_439, "globex"), (1_440, "acme")):
            await rollups.add([_rollup(first + minute, tenant=tenant)])

        async def read(**fields: Any) -> list[tuple[int, str, int, float]]:
            found = await rollups.rollups(RollupFilter(since=day, until=day + 2 * DAY, step=DAY, **fields))
            return [(one.key.minute - day, one.key.tenant, one.ran.count, one.processor) for one in found]

        assert await read() == [(0, "acme", 2, 0.5), (0, "globex", 1, 0.25), (DAY, "acme", 1, 0.25)]
        assert await read(tenant="globex") == [(0, "globex", 1, 0.25)]
        while await rollups.forget(before=day + DAY):
            pass
        assert await read() == [(DAY, "acme", 1, 0.25)]

    @case
    async def test_figures_per_quarter_hour_and_for_all_tenants_sum_the_minutes(self) -> None:
        rollups = self.history().rollups
        quarter = _AT // QUARTER * QUARTER
        first = (quarter - _AT) // MINUTE
        added = [(0, "acme"), (1, "acme"), (1, "globex"), (15, "acme"), (16, "")]
        for minute, tenant in added:
            await rollups.add([_rollup(first + minute, tenant=tenant)])
        await rollups.add([_rollup(first, tenant=tenant) for tenant in ("acme", "globex")])

        async def read(**fields: Any) -> list[tuple[int, str, int]]:
            which = RollupFilter(since=quarter, until=quarter + 2 * QUARTER, **fields)
            found = await self.history().rollups.rollups(which)
            return [(one.key.minute - quarter, one.key.tenant, one.ran.count) for one in found]

        assert await read(step=QUARTER) == [(0, "acme", 3), (0, "globex", 2), (QUARTER, "", 1), (QUARTER, "acme", 1)]
        assert await read(step=QUARTER, tenant="acme") == [(0, "acme", 3), (QUARTER, "acme", 1)]
        assert await read(step=QUARTER, is_whole=True) == [(0, "", 5), (QUARTER, "", 2)]
        assert await read(step=QUARTER, is_whole=True, task="other") == []
        minutes = [(0, "", 3), (MINUTE, "", 2), (QUARTER, "", 1), (QUARTER + MINUTE, "", 1)]
        assert await read(is_whole=True) == minutes
        page = RollupFilter(since=quarter, until=quarter + 2 * QUARTER, is_whole=True)
        (one,) = await rollups.rollups(page, limit=1)
        assert len(await rollups.rollups(page, after=one.key)) == len(minutes) - 1

        while await rollups.forget(before=quarter + QUARTER):
            pass

        assert await read(step=QUARTER, is_whole=True) == [(QUARTER, "", 2)]
        assert await read(is_whole=True) == minutes[2:]

    @case
    async def test_failures_are_read_back_unchanged_newest_first(self) -> None:
        rollups = self.history().rollups
        whole = _failure(
            "j ☂", event="parked", tenant="acme", worker="w", attempt=3, seconds=1.5, error="OSError", reason="error",
            message="no ☂", traceback="Traceback ...\n" * 500,
        )  # fmt: skip

        await rollups.add([], [whole, *(_failure(f"j{number}", at=_AT + number) for number in range(120))])

        page = await self.history().rollups.failures(FailureFilter(), limit=119)
        rest = await rollups.failures(FailureFilter(), after=page.after, limit=119)
        assert [one.job for one in page.failures] == [f"j{number}" for number in reversed(range(1, 120))]
        assert ([one.job for one in rest.failures], rest.after) == (["j0", "j ☂"], None)
        (found,) = (await rollups.failures(FailureFilter(job="j ☂"))).failures
        assert (found.event, found.tenant, found.worker, found.attempt) == ("parked", "acme", "w", 3)
        assert (found.seconds, found.error, found.reason, found.at) == (1.5, "OSError", "error", _AT)
        assert (found.message, found.traceback) == (whole.message, whole.traceback)
        for which, expected in (
            (FailureFilter(tenant="acme"), 1),
            (FailureFilter(jobs=frozenset({"j ☂", "absent"})), 1),
            (FailureFilter(jobs=frozenset({"\0"})), 0),
            (FailureFilter(error="OSError", task="t", queue="q"), 1),
            (FailureFilter(task="other"), 0),
            (FailureFilter(error="\0"), 0),
            (FailureFilter(since=_AT + 100), 20),
            (FailureFilter(until=_AT + 1), 2),
        ):
            assert len((await rollups.failures(which, limit=200)).failures) == expected, which

    @case
    async def test_old_figures_are_deleted_in_batches(self) -> None:
        rollups = self.history().rollups
        await rollups.add([_rollup(0), _rollup(1), _rollup(2)], [_failure("a"), _failure("b", at=_AT + 3 * MINUTE)])

        forgotten = [await rollups.forget(before=_AT + 2 * MINUTE, limit=1) for _ in range(3)]

        assert forgotten == [2, 1, 0]
        assert [one.key.minute for one in await rollups.rollups(_ALL)] == [_AT + 2 * MINUTE]
        assert [one.job for one in (await rollups.failures(FailureFilter())).failures] == ["b"]
