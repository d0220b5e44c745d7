"""Changes of stored jobs as events. The store publishes nothing, so this polls it."""

from collections.abc import Iterator
from typing import Final

from taskmq.contracts.jobs import HistoryEntry, JobAction, JobRecord, JobStore
from taskmq.durable.lookback import Lookback
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import tenant_key
from taskmq.model.states import TERMINAL
from taskmq.model.telemetry.events import JobEvent
from taskmq.stored_jobs.new_jobs import name_of

# Of one poll, which covers a second and the time for late commits. If there are more, the oldest are skipped.
_MOST: Final = 1_000
# Event names by kind of history entry. Other kinds keep their names.
_NAMES: Final = {
    "change": "changed",
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "retry": "requeued",
}
# Entries that may end the job, and are then named after its final state.
_ENDS: Final = ("ended", "undispatched")


class StoreEvents:
    """Reports submissions and history entries of stored jobs as events, each once.

    A submission has the time in the job's id, by the submitter's clock.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._lookback = Lookback()

    async def poll(self) -> list[JobEvent]:
        """Return the events since the last poll, oldest first; nothing on the first poll.

        Raises:
            StoreUnavailable: the store is unreachable; the next poll returns the missed events.
        """
        now = await self._store.now_ms()
        since = self._lookback.since(now)
        page = await self._store.list_jobs(JobFilter(submitted_from=since), limit=_MOST)
        actions = await self._store.actions(since, limit=_MOST)
        found = sorted([*self._submissions(page.jobs), *self._actions(actions)], key=lambda one: one.at)
        return [] if self._lookback.end(now) else found

    def _submissions(self, jobs: list[JobRecord]) -> Iterator[JobEvent]:
        for job in jobs:
            if self._lookback.is_new((job.id, ""), job.submitted):
                yield _event("submitted", job, name_of(job), job.submitted)

    def _actions(self, actions: list[JobAction]) -> Iterator[JobEvent]:
        for one in actions:
            entry = one.entry
            # The worker announces it.
            if entry.kind == "interrupted":
                continue
            if self._lookback.is_new((one.job_id, f"{entry.kind} {entry.version}"), entry.at):
                name = one.job_id if one.key is None else tenant_key(one.tenant or None, one.key)
                yield _event(_name(entry), one, name, entry.at)


def _name(entry: HistoryEntry) -> str:
    if entry.kind in _ENDS and entry.state in TERMINAL:
        return str(entry.state)
    return _NAMES.get(entry.kind, entry.kind)


def _event(name: str, job: JobRecord | JobAction, job_id: str, at: int) -> JobEvent:
    # Events of runs have the same name, which is in the job's messages.
    return JobEvent(
        event=name, number=0, at=at, job_id=job_id, task=job.task, queue=job.queue, tenant=job.tenant, is_stored=True
    )
