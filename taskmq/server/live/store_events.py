"""What is done to jobs of the store, as events. The store announces nothing, so it is asked."""

from collections.abc import Iterator
from typing import Final

from taskmq.contracts.jobs import HistoryEntry, JobAction, JobRecord, JobStore
from taskmq.durable.lookback import Lookback
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import tenant_key
from taskmq.model.states import TERMINAL
from taskmq.model.telemetry.events import JobEvent
from taskmq.stored_jobs.new_jobs import name_of

__all__ = ["StoreEvents"]

# The newest of a look, which is of one second and of the time for late commits: of more, older ones are left out.
_MOST: Final = 1_000
# Events are named as facts. A kind of history entry that is not here keeps its name.
_NAMES: Final = {
    "change": "changed",
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "retry": "requeued",
}
# Those that may be the job's end, and are named as it is.
_ENDS: Final = ("ended", "undispatched")


class StoreEvents:
    """Submissions and what the histories of jobs have, each once.

    A submission counts as of the time that its job's id says, by the clock of who submitted it.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._looks = Lookback()

    async def look(self) -> list[JobEvent]:
        """What has happened since the last look, the earliest first; nothing at the first.

        Raises:
            StoreUnavailable: it could not be reached; the next look finds what this one would have.
        """
        now = await self._store.now_ms()
        since = self._looks.since(now)
        page = await self._store.list_jobs(JobFilter(submitted_from=since), limit=_MOST)
        actions = await self._store.actions(since, limit=_MOST)
        found = sorted([*self._submissions(page.jobs), *self._actions(actions)], key=lambda one: one.at)
        return [] if self._looks.end(now) else found

    def _submissions(self, jobs: list[JobRecord]) -> Iterator[JobEvent]:
        for job in jobs:
            if self._looks.is_new((job.id, ""), job.submitted):
                yield _event("submitted", job, name_of(job), job.submitted)

    def _actions(self, actions: list[JobAction]) -> Iterator[JobEvent]:
        for one in actions:
            entry = one.entry
            # Its worker announces that itself.
            if entry.kind == "interrupted":
                continue
            if self._looks.is_new((one.job_id, f"{entry.kind} {entry.version}"), entry.at):
                name = one.job_id if one.key is None else tenant_key(one.tenant or None, one.key)
                yield _event(_name(entry), one, name, entry.at)


def _name(entry: HistoryEntry) -> str:
    if entry.kind in _ENDS and entry.state in TERMINAL:
        return str(entry.state)
    return _NAMES.get(entry.kind, entry.kind)


def _event(name: str, job: JobRecord | JobAction, job_id: str, at: int) -> JobEvent:
    # Events of runs have the same name: it stands in the job's messages.
    return JobEvent(
        event=name, number=0, at=at, job_id=job_id, task=job.task, queue=job.queue, tenant=job.tenant, is_stored=True
    )
