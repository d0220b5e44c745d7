"""Depths of queues over time, in a table."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from taskmq.contracts.history import QueueDepth
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import SqlCalls, Steps, ask, insert, write_call

_ADD: Final = """
insert into taskmq.queue_depth (minute, queue, stored, ready, in_hand) @rows(bigint, text, bigint, bigint, bigint)
on conflict (minute, queue) do nothing"""


class SqlDepths(SqlCalls):
    """A `DepthStore` in the database's tables."""

    @write_call
    def add(self, depths: Sequence[QueueDepth]) -> Steps[None]:
        yield from insert(_ADD, [(one.at, one.queue, one.stored, one.ready, one.in_hand) for one in depths])

    async def depths(
        self, *, since: int, until: int, step: int, queue: str | None = None, limit: int = 50_000
    ) -> list[QueueDepth]:
        if not can_be_kept(queue or ""):
            return []
        return await self.runner.show(partial(_depths, since=since, until=until, step=step, queue=queue, limit=limit))

    @write_call
    def forget(self, *, before: int, limit: int = 1_000) -> Steps[int]:
        rows = yield from ask(
            "delete from taskmq.queue_depth where (minute, queue) in (select minute, queue from taskmq.queue_depth "
            "where minute < $1 order by minute limit $2) returning minute",
            before,
            limit,
        )
        return len(rows)


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
