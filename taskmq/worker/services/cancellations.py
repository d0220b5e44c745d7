"""Cancelled jobs, as this worker knows them.

The state is authoritative. The worker keeps a copy in memory, so that a delivery costs one look-up in a dictionary
that is mostly empty. It reads everything when it starts, so a cancellation survives every restart; then it reads
changes every `_LOOK` seconds. A command over the broker only makes it read immediately: it proves nothing, and a lost
one does no harm.
"""

from collections.abc import Callable
from typing import Final

from taskmq.contracts.stores import RevocationStore
from taskmq.model.clock import Clock
from taskmq.worker.services.state_copy import StateCopy

_LOOK: Final = 2.0
_BATCH: Final = 1000


class Cancellations(StateCopy):
    """The cancelled jobs that one worker knows: a `Service`.

    Args:
        cancel: called with job id and reason of each new cancellation.
    """

    def __init__(self, store: RevocationStore, clock: Clock, cancel: Callable[[str, str], None]) -> None:
        super().__init__(every=_LOOK, trouble="cancelled jobs may run, because the state does not say which they are")
        self._store = store
        self._clock = clock
        self._cancel = cancel
        self._known: dict[str, tuple[str, int]] = {}
        self._cursor = 0

    def reason(self, job_id: str) -> str | None:
        """Return why the job was cancelled; None if no cancellation is known here."""
        if not self._known:
            return None
        found = self._known.get(job_id)
        return None if found is None or found[1] <= self._clock.now_ms() else found[0]

    async def _read(self) -> None:
        while found := await self._store.since(self._cursor, limit=_BATCH):
            for one in found:
                self._learn(one.job_id, one.reason, one.until)
            self._cursor = found[-1].cursor

    async def _act(self) -> None:
        now = self._clock.now_ms()
        for job_id in [job_id for job_id, (_, until) in self._known.items() if until <= now]:
            del self._known[job_id]

    def _learn(self, job_id: str, reason: str, until: int) -> None:
        known = self._known.get(job_id)
        self._known[job_id] = (reason, max(until, known[1]) if known else until)
        if known is None:
            self._cancel(job_id, reason)
