"""Schedules and reactions, through the server."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    ChangeScheduleBody,
    InstantList,
    PauseScheduleBody,
    PutReactionBody,
    PutScheduleBody,
    ReactionLine,
    ReactionList,
    ReactionView,
    RuleExplanation,
    ScheduleExplanation,
    ScheduleLine,
    ScheduleList,
    ScheduleRule,
    ScheduleView,
)
from taskmq.http.aio.connection import AsyncCalls, every


class AsyncScheduleCalls(AsyncCalls):
    """The schedules of the server's app."""

    async def get(self, name: str) -> ScheduleView:
        """Return a schedule with the history of its occurrences."""
        return await self._connection.ask("getSchedule", ScheduleView, path={"name": name})

    async def add(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Add a schedule like `put`, unless one with the name exists. Repeating the same one changes nothing.

        Raises:
            InvalidOption: another schedule has the name.
        """
        path = {"name": name}
        return await self._connection.ask("putSchedule", ScheduleView, path=path, body=body, version=0, repeats=True)

    async def put(self, name: str, body: PutScheduleBody) -> ScheduleView:
        """Create or replace a schedule. Omitted fields take their defaults."""
        return await self._connection.ask("putSchedule", ScheduleView, path={"name": name}, body=body)

    async def change(self, name: str, body: ChangeScheduleBody) -> ScheduleView:
        """Change the given fields of a schedule created at run time. All others stay unchanged, including its counts.

        Raises:
            ScheduleNotFound: no schedule has the name.
            InvalidOption: it is defined in code, or the change is invalid.
        """
        return await self._connection.ask("changeSchedule", ScheduleView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Remove a schedule created at run time."""
        await self._connection.ask("removeSchedule", dict[str, str], path={"name": name})

    async def next(self, name: str, *, count: int = 5, after: datetime | None = None) -> Sequence[str | None]:
        """Return the next occurrences, even while it is paused."""
        query = {"count": count, "after": after}
        return (await self._connection.ask("getNextOccurrences", InstantList, path={"name": name}, query=query)).items

    async def explain(self, name: str, *, count: int = 5) -> ScheduleExplanation:
        """Explain a schedule in words, with its next occurrences in its time zone."""
        query = {"count": count}
        return await self._connection.ask("explainSchedule", ScheduleExplanation, path={"name": name}, query=query)

    async def explain_rule(self, body: ScheduleRule, *, count: int = 5) -> RuleExplanation:
        """Explain a rule in words, with its next occurrences. Nothing is stored."""
        query = {"count": count}
        return await self._connection.ask("explainRule", RuleExplanation, query=query, body=body)

    async def pause(self, name: str, *, note: str = "") -> ScheduleView:
        """Pause a schedule: no occurrences are emitted until it is resumed."""
        body = PauseScheduleBody(note=note)
        return await self._connection.ask("pauseSchedule", ScheduleView, path={"name": name}, body=body)

    async def resume(self, name: str) -> ScheduleView:
        """Resume a paused schedule."""
        return await self._connection.ask("resumeSchedule", ScheduleView, path={"name": name})

    async def run(self, name: str) -> str:
        """Start the schedule's task now. Returns the job's id."""
        return (await self._connection.ask("runSchedule", dict[str, str], path={"name": name}))["job_id"]

    async def backfill(self, name: str, start: datetime, end: datetime, *, dry_run: bool = False) -> BackfillView:
        """Emit the occurrences of a past period, at low priority and a limited rate."""
        body = BackfillBody(start=start, end=end, dry_run=dry_run)
        return await self._connection.ask("backfillSchedule", BackfillView, path={"name": name}, body=body)

    async def page(
        self, prefix: str = "", *, workflow: str = "", limit: int = 50, cursor: str | None = None
    ) -> ScheduleList:
        """Return a page of the schedules whose names have this prefix.

        Args:
            workflow: instead, return those that start this workflow: of the code, and others whose names begin with
                the workflow's.
        """
        query = {"prefix": prefix, "workflow": workflow, "limit": limit, "cursor": cursor}
        return await self._connection.ask("listSchedules", ScheduleList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> AsyncIterator[ScheduleLine]:
        """Iterate over the schedules with this prefix, ordered by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))


class AsyncReactionCalls(AsyncCalls):
    """The reactions of the server's app."""

    async def get(self, name: str) -> ReactionView:
        """Return a reaction, what it waits for, and its calls.

        Raises:
            ReactionNotFound: no reaction has the name, or a tenant is selected.
        """
        return await self._connection.ask("getReaction", ReactionView, path={"name": name})

    async def put(self, name: str, body: PutReactionBody) -> ReactionView:
        """Create or replace a reaction to ends of stored jobs or runs. With an equal condition it keeps its events.

        Raises:
            InvalidOption: it is defined in code, or it is invalid.
        """
        return await self._connection.ask("putReaction", ReactionView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Remove a reaction created at run time, with its events."""
        await self._connection.ask("removeReaction", dict[str, str], path={"name": name})

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> ReactionList:
        """Return a page of the reactions whose names have this prefix."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._connection.ask("listReactions", ReactionList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> AsyncIterator[ReactionLine]:
        """Iterate over the reactions with this prefix, ordered by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))
