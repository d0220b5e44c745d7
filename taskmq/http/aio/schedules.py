"""Schedules, by the server."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    ChangeScheduleBody,
    InstantList,
    PauseScheduleBody,
    PutScheduleBody,
    RuleExplanation,
    ScheduleExplanation,
    ScheduleLine,
    ScheduleList,
    ScheduleRule,
    ScheduleView,
)
from taskmq.http.aio.connection import AsyncHttpConnection, every

__all__ = ["AsyncScheduleCalls"]


class AsyncScheduleCalls:
    """The schedules of the server's app."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def get(self, name: str) -> ScheduleView:
        """A schedule, and what has become of its occurrences."""
        return await self._connection.ask("getSchedule", ScheduleView, path={"name": name})

    async def add(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Add a schedule as `put` does, if there is none of that name; the same one again changes nothing.

        Raises:
            InvalidOption: another one has the name.
        """
        path = {"name": name}
        return await self._connection.ask("putSchedule", ScheduleView, path=path, body=body, version=0, repeats=True)

    async def put(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Start a task whenever the schedule says, from now on; what the body does not say has its default."""
        return await self._connection.ask("putSchedule", ScheduleView, path={"name": name}, body=body)

    async def change(self, name: str, body: ChangeScheduleBody) -> ScheduleView:
        """Change what the body says of a schedule that was made at run time; all else stays, its counts too.

        Raises:
            ScheduleNotFound: there is none of that name.
            InvalidOption: it is defined in the code, or cannot be so.
        """
        return await self._connection.ask("changeSchedule", ScheduleView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Let a schedule that was made at run time not be due any more."""
        await self._connection.ask("removeSchedule", dict[str, str], path={"name": name})

    async def next(self, name: str, *, count: int = 5, after: datetime | None = None) -> Sequence[str | None]:
        """The instants at which it is due next, whether or not it is paused."""
        query = {"count": count, "after": after}
        return (await self._connection.ask("getNextOccurrences", InstantList, path={"name": name}, query=query)).items

    async def explain(self, name: str, *, count: int = 5) -> ScheduleExplanation:
        """Explain a schedule in words, with its next occurrences by the clocks of its zone."""
        query = {"count": count}
        return await self._connection.ask("explainSchedule", ScheduleExplanation, path={"name": name}, query=query)

    async def explain_rule(self, body: ScheduleRule, *, count: int = 5) -> RuleExplanation:
        """Explain a rule in words, with its next occurrences, before a schedule has it."""
        query = {"count": count}
        return await self._connection.ask("explainRule", RuleExplanation, query=query, body=body)

    async def pause(self, name: str, *, note: str = "") -> ScheduleView:
        """Have nothing emitted until it is resumed."""
        body = PauseScheduleBody(note=note)
        return await self._connection.ask("pauseSchedule", ScheduleView, path={"name": name}, body=body)

    async def resume(self, name: str) -> ScheduleView:
        """Have a paused schedule go on."""
        return await self._connection.ask("resumeSchedule", ScheduleView, path={"name": name})

    async def run(self, name: str) -> str:
        """Send a call of its task now; the job's id."""
        return (await self._connection.ask("runSchedule", dict[str, str], path={"name": name}))["job_id"]

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences of a range of the past, at low priority and a few a second."""
        body = BackfillBody(start=start, end=end, dry_run=dry_run)
        return await self._connection.ask("backfillSchedule", BackfillView, path={"name": name}, body=body)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ScheduleList:
        """A page of the schedules whose names begin so."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._connection.ask("listSchedules", ScheduleList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> AsyncIterator[ScheduleLine]:
        """Iterate over the schedules with this prefix by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))
