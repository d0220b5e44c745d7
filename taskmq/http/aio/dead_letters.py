"""Dead letters, through the server."""

from collections.abc import Sequence
from typing import Unpack

from taskmq.api.dead_letters import (
    LetterFilters,
    LetterGroups,
    LetterGroupView,
    LetterList,
    LetterQueues,
    LetterView,
    PurgeLettersBody,
    ReplayBody,
    ReplayedView,
)
from taskmq.api.queues import (
    PurgedView,
)
from taskmq.http.aio.connection import AsyncCalls


class AsyncDeadLetterCalls(AsyncCalls):
    """Dead letters of the broker."""

    async def queues(self) -> Sequence[str]:
        """List the queues that have dead letters."""
        return (await self._connection.ask("listDeadLetterQueues", LetterQueues)).items

    async def groups(self, queue: str, **which: Unpack[LetterFilters]) -> Sequence[LetterGroupView]:
        """Return the failures behind matching letters of a queue, most frequent first."""
        path = {"queue": queue}
        return (await self._connection.ask("groupDeadLetters", LetterGroups, path=path, query={**which})).items

    async def replay(self, queue: str, which: ReplayBody | None = None) -> ReplayedView:
        """Replay the letters selected by `which`."""
        body = which or ReplayBody()
        return await self._connection.ask("replayDeadLetters", ReplayedView, path={"queue": queue}, body=body)

    async def purge(
        self, queue: str, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[LetterFilters]
    ) -> int:
        """Delete matching letters, or all of them without a filter, and return their number.

        Args:
            limit: delete at most this number, oldest first.
            dry_run: only count the letters.
        """
        body = PurgeLettersBody(name=queue, limit=limit, dry_run=dry_run, **which)
        return (await self._connection.ask("purgeDeadLetters", PurgedView, path={"queue": queue}, body=body)).purged

    async def list(
        self, queue: str, *, limit: int = 50, expand: Sequence[str] = (), **which: Unpack[LetterFilters]
    ) -> Sequence[LetterView]:
        """List the oldest matching letters of a queue. They stay in the queue.

        Args:
            expand: parts to include: `body`, for callers who may read jobs.
        """
        query = {**which, "limit": limit, "expand": ",".join(expand) or None}
        return (await self._connection.ask("listDeadLetters", LetterList, path={"queue": queue}, query=query)).items
