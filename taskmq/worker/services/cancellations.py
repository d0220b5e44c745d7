"""Which jobs were cancelled, as this worker knows it.

The state has the truth; the worker keeps a copy in memory, so that a delivery costs one look into a dictionary that
is empty most of the time. It reads all of it when it starts, so a cancellation survives every restart; then what is
new, every `_LOOK` seconds. What is said over the broker only makes it look at once: it proves nothing, and nothing is
missed when it gets lost.
"""

from collections.abc import Callable
from typing import Final

from taskmq.contracts.stores import RevocationStore
from taskmq.model.clock import Clock
from taskmq.worker.services.state_copy import StateCopy

__all__ = ["Cancellations"]

_LOOK: Final = 2.0
_BATCH: Final = 1000


class Cancellations(StateCopy):
    """The cancelled jobs that one worker knows: a `Service`.

    Args:
        cancel: called with job id and reason of each new one.
    """

    def __init__(self, store: RevocationStore, clock: Clock, cancel: Callable[[str, str], None]) -> None:
        super().__init__(every=_LOOK, trouble="cancelled jobs may run, because the state does not say which they are")
        self._store = store
        self._clock = clock
        self._cancel = cancel
        self._known: dict[str, tuple[str, int]] = {}
        self._place = 0

    def reason(self, job_id: str) -> str | None:
        """Why the job was cancelled; None when it was not, as far as is known here."""
        if not self._known:
            return None
        found = self._known.get(job_id)
        return None if found is None or found[1] <= self._clock.now_ms() else found[0]

    async def _read(self) -> None:
        while found := await self._store.since(self._place, limit=_BATCH):
            for one in found:
                self._learn(one.job_id, one.reason, one.until)
            self._place = found[-1].place

    async def _act(self) -> None:
        now = self._clock.now_ms()
        for job_id in [job_id for job_id, (_, until) in self._known.items() if until <= now]:
            del self._known[job_id]

    def _learn(self, job_id: str, reason: str, until: int) -> None:
        known = self._known.get(job_id)
        self._known[job_id] = (reason, max(until, known[1]) if known else until)
        if known is None:
            self._cancel(job_id, reason)
