"""Jobs whose time was over before a scheduler dispatched them. The store announces nothing, so it is asked."""

from typing import Final

from taskmq.contracts.jobs import JobAction, JobStore
from taskmq.model.states import JobState

__all__ = ["ExpiredJobs"]

# What is committed so many ms after it was written is found still.
_LATE: Final = 3_000
# Of the entries of all histories that are new since the last look; of more, earlier ones are left out.
_MOST: Final = 5_000


class ExpiredJobs:
    """What the store has ended as expired, each once. Those that a worker has found so are not among them."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        # When each was, by the job and its version.
        self._seen: dict[tuple[str, int], int] = {}
        self._until: int | None = None

    async def look(self) -> list[JobAction]:
        """Those since the last look; none at the first.

        Raises:
            StoreUnavailable: it could not be reached; the next look finds what this one would have.
        """
        now = await self._store.now_ms()
        since = (now if self._until is None else self._until) - _LATE
        found = [
            one
            for one in await self._store.actions(since, limit=_MOST)
            if one.entry.kind == "ended"
            and one.entry.state is JobState.EXPIRED
            and (one.job_id, one.entry.version) not in self._seen
        ]
        self._seen = {key: at for key, at in self._seen.items() if at >= since}
        self._seen |= {(one.job_id, one.entry.version): one.entry.at for one in found}
        is_first, self._until = self._until is None, now
        return [] if is_first else found
