"""Figures over time that one caller may see."""

import asyncio
from collections.abc import Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.history import RollupFilter, RollupStore, history_of
from taskmq.errors import InvalidOption
from taskmq.model.history.figures import Series, check_names, check_parts, check_size, check_step, series_of
from taskmq.model.history.rollups import DAY, QUARTER, Rollup, minute_of, spans, sum_rollups
from taskmq.model.telemetry.app_versions import AppVersion
from taskmq.operations.history.depths import DEPTHS, read_depths

_MOST: Final = 200_000
_HOUR: Final = 3_600_000


class TenantFigures:
    """Figures of a tenant's runs.

    Every method raises `StoreUnavailable`, and `UnsupportedFeature` if the app has no store that keeps figures.

    Args:
        tenant: tenant that owns the runs; "" means runs without a tenant, None means all.
        most: most rollups to read for one answer; a request that needs more is refused.
    """

    def __init__(self, app: TaskMQ, tenant: str | None, *, most: int = _MOST) -> None:
        self._app = app
        self._tenant = tenant
        self._most = most

    async def series(
        self,
        names: Sequence[str],
        *,
        since: int | None = None,
        until: int | None = None,
        step: int = 60_000,
        task: str | None = None,
        queue: str | None = None,
        by: tuple[str, ...] = (),
    ) -> dict[str, list[Series]]:
        """Return figures by name from `since` to `until`; default: the last hour.

        Depths of queues (`DEPTHS`) have names, too. A tenant has none.

        Raises:
            InvalidOption: a figure is unknown, the time or the step is invalid, or the answer is too long.
        """
        of_queues = [name for name in dict.fromkeys(names) if name in DEPTHS]
        by = check_parts(by)
        figures = check_names([name for name in names if name not in DEPTHS])
        since, until = await self._time(since, until)
        check_step(since, until, step)
        found: dict[str, list[Series]] = {}
        if of_queues and self._tenant is None:
            store = history_of(self._app.sessions.store()).depths
            found = await read_depths(store, of_queues, since=since, until=until, step=step, queue=queue, by=by)
        if not figures:
            return found
        is_whole = "tenant" not in by
        rollups = await self._read(since, until, task, queue, is_whole=is_whole, step=step)
        counted = await asyncio.to_thread(series_of, figures, rollups, since=since, until=until, step=step, by=by)
        return found | counted

    async def versions(self, *, since: int | None = None, until: int | None = None) -> list[AppVersion]:
        """Return the versions of the app that workers ran; default: in the last hour. A tenant has none."""
        if self._tenant is not None:
            return []
        since, until = await self._time(since, until)
        return await history_of(self._app.sessions.store()).versions.versions(since=since, until=until)

    async def totals(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: tuple[str, ...] = ("task", "queue"),
    ) -> tuple[int, int, list[Rollup]]:
        """Return start, end and the totals of a time, by task, queue or tenant.

        Raises:
            InvalidOption: a part is unknown, or the answer is too long.
        """
        by = check_parts(by)
        since, until = await self._time(since, until)
        rollups = await self._read(since, until, task, queue, is_whole="tenant" not in by)
        check_size(rollups, by, each=1)
        whole = await asyncio.to_thread(sum_rollups, rollups, step=max(until, 1) * 2, by=by)
        return since, until, list(whole.values())

    async def usage(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        task: str | None = None,
        queue: str | None = None,
        by: tuple[str, ...] = ("tenant", "task", "queue"),
    ) -> list[Rollup]:
        """Return the totals of whole days in UTC, by task, queue or tenant; default: the last seven days.

        Raises:
            InvalidOption: a part is unknown, or the answer is too long.
        """
        by = check_parts(by)
        last = await self._app.sessions.store().now_ms() if until is None else max(until - 1, 0)
        first = last - 6 * DAY if since is None else since
        which = RollupFilter(
            since=first // DAY * DAY,
            until=last // DAY * DAY + DAY,
            task=task,
            queue=queue,
            tenant=self._tenant,
            step=DAY,
        )
        found = await self._store.rollups(which, limit=self._most + 1)
        if len(found) > self._most:
            raise InvalidOption(
                f"since: the answer needs more than {self._most} rollups; ask for a shorter time or one task"
            )
        return list((await asyncio.to_thread(sum_rollups, found, step=DAY, by=by)).values())

    async def _time(self, since: int | None, until: int | None) -> tuple[int, int]:
        if until is None:
            until = await self._app.sessions.store().now_ms() + 1
        return minute_of(max(until - _HOUR, 0)) if since is None else since, until

    async def _read(
        self, since: int, until: int, task: str | None, queue: str | None, *, is_whole: bool, step: int = QUARTER
    ) -> list[Rollup]:
        found: list[Rollup] = []
        for begin, end, each in spans(minute_of(since), until, step):
            which = RollupFilter(
                since=begin, until=end, task=task, queue=queue, tenant=self._tenant, step=each,
                is_whole=is_whole and self._tenant is None,
            )  # fmt: skip
            found += await self._store.rollups(which, limit=self._most + 1 - len(found))
            if len(found) > self._most:
                raise InvalidOption(
                    f"since: the answer needs more than {self._most} rollups; ask for a shorter time or one task"
                )
        return found

    @property
    def _store(self) -> RollupStore:
        return history_of(self._app.sessions.store()).rollups
