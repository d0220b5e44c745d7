"""Depths of queues over time, in a table."""

from collections.abc import Sequence
from functools import partial

from taskmq.contracts.history import QueueDepth
from taskmq.model.units import storable
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import SqlCalls, Steps, ask, placeholders

_TOGETHER = 100
_WIDTH = 5


class SqlDepths(SqlCalls):
    """A `DepthStore` in the database's tables."""

    async def add(self, depths: Sequence[QueueDepth]) -> None:
        if depths:
            await self._runner.write(partial(_add, depths=depths))

    async def depths(
        self, *, since: int, until: int, step: int, queue: str | None = None, limit: int = 50_000
    ) -> list[QueueDepth]:
        if not can_be_kept(queue or ""):
            return []
        return await self._runner.show(
            partial(_depths, since=since, until=until, step=step, queue=queue, limit=limit)
        )

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        return await self._runner.write(partial(_forget, before=before, limit=limit))


def _add(*, depths: Sequence[QueueDepth]) -> Steps[None]:
    for begin in range(0, len(depths), _TOGETHER):
        part = depths[begin : begin + _TOGETHER]
        values = ", ".join(f"({placeholders(_WIDTH, begin=row * _WIDTH + 1)})" for row in range(len(part)))
        args = (value for one in part for value in (one.at, storable(one.queue), one.stored, one.ready, one.in_hand))
        yield from ask(
            f"insert into taskmq.queue_depth (minute, queue, stored, ready, in_hand) values {values} "
            "on conflict (minute, queue) do nothing",
            *args,
        )


def _depths(*, since: int, until: int, step: int, queue: str | None, limit: int) -> Steps[list[QueueDepth]]:
    conditions = Conditions()
    conditions.demand("minute >= {}", since)
    conditions.demand("minute < {}", until)
    conditions.equal("queue", queue)
    begin = f"minute / {int(step)} * {int(step)}"
    rows = yield from ask(
        f"select queue, {begin}, max(stored), max(ready), max(in_hand) from taskmq.queue_depth {conditions.where} "
        f"group by queue, {begin} order by {begin}, queue limit {conditions.add_value(limit)}",
        *conditions.args,
    )
    return [QueueDepth(queue=row[0], at=row[1], stored=row[2], ready=row[3], in_hand=row[4]) for row in rows]


def _forget(*, before: int, limit: int) -> Steps[int]:
    rows = yield from ask(
        "delete from taskmq.queue_depth where (minute, queue) in ("
        "select minute, queue from taskmq.queue_depth where minute < $1 order by minute limit $2) returning minute",
        before,
        limit,
    )
    return len(rows)
