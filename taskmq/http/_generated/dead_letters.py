# Generated from taskmq/http/aio/dead_letters.py by `python -m tests.house.blocking_client`: change that one.
"""Dead letters, by the server."""

from collections.abc import Sequence

from taskmq.api.dead_letters import (
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
from taskmq.http._generated.connection import HttpConnection

__all__ = ["DeadLetterCalls"]


class DeadLetterCalls:
    """Dead letters at the broker."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def queues(self) -> Sequence[str]:
        """The queues that have dead letters."""
        return (self._connection.ask("listDeadLetterQueues", LetterQueues)).items

    def groups(self, queue: str) -> Sequence[LetterGroupView]:
        """The failures behind the letters of a queue, the most frequent first."""
        return (self._connection.ask("groupDeadLetters", LetterGroups, path={"queue": queue})).items

    def replay(self, queue: str, which: ReplayBody | None = None) -> ReplayedView:
        """Send the jobs of letters again: those of `which`, and as it says."""
        body = which or ReplayBody()
        return self._connection.ask("replayDeadLetters", ReplayedView, path={"queue": queue}, body=body)

    def purge(
        self,
        queue: str,
        *,
        task: str | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        job: str | None = None,
    ) -> int:
        """Delete the letters that are meant, all where nothing is said; how many they were."""
        body = PurgeLettersBody(name=queue, task=task, error=error, fingerprint=fingerprint, job=job)
        return (self._connection.ask("purgeDeadLetters", PurgedView, path={"queue": queue}, body=body)).purged

    def list(
        self,
        queue: str,
        *,
        task: str | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        job: str | None = None,
        limit: int = 50,
    ) -> Sequence[LetterView]:
        """The oldest letters of a queue that are meant; they stay where they are."""
        query = {"task": task, "error": error, "fingerprint": fingerprint, "job": job, "limit": limit}
        return (self._connection.ask("listDeadLetters", LetterList, path={"queue": queue}, query=query)).items
