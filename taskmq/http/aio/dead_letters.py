"""Dead letters, by the server."""

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
from taskmq.http.aio.connection import AsyncHttpConnection

__all__ = ["AsyncDeadLetterCalls"]


class AsyncDeadLetterCalls:
    """Dead letters at the broker."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def queues(self) -> Sequence[str]:
        """The queues that have dead letters."""
        return (await self._connection.ask("listDeadLetterQueues", LetterQueues)).items

    async def groups(self, queue: str, **which: Unpack[LetterFilters]) -> Sequence[LetterGroupView]:
        """The failures behind the letters of a queue that are meant, the most frequent first."""
        path = {"queue": queue}
        return (await self._connection.ask("groupDeadLetters", LetterGroups, path=path, query={**which})).items

    async def replay(self, queue: str, which: ReplayBody | None = None) -> ReplayedView:
        """Send the jobs of letters again: those of `which`, and as it says."""
        body = which or ReplayBody()
        return await self._connection.ask("replayDeadLetters", ReplayedView, path={"queue": queue}, body=body)

    async def purge(
        self, queue: str, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[LetterFilters]
    ) -> int:
        """Delete the letters that match, all of them without a filter, and return their number.

        Args:
            limit: at most so many, the oldest.
            dry_run: only count them.
        """
        body = PurgeLettersBody(name=queue, limit=limit, dry_run=dry_run, **which)
        return (await self._connection.ask("purgeDeadLetters", PurgedView, path={"queue": queue}, body=body)).purged

    async def list(
        self, queue: str, *, limit: int = 50, expand: Sequence[str] = (), **which: Unpack[LetterFilters]
    ) -> Sequence[LetterView]:
        """The oldest letters of a queue that are meant; they stay where they are.

        Args:
            expand: what is shown, too: `body`, to those who may read jobs.
        """
        query = {**which, "limit": limit, "expand": ",".join(expand) or None}
        return (await self._connection.ask("listDeadLetters", LetterList, path={"queue": queue}, query=query)).items
