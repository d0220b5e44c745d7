"""Release of the jobs that their code holds, once no worker of their queue runs a version that was tried.

Each scheduler looks every ten seconds. A job is released only in the version that the scheduler has read, so two
schedulers release it once.
"""

import asyncio
import logging
import socket
from collections.abc import Collection
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import HeldJob, JobRecord, JobStore
from taskmq.durable.service import pause
from taskmq.errors import JobConflict, JobNotFound, StoreUnavailable
from taskmq.model.telemetry.app_versions import can_be_released
from taskmq.scheduler.signals import LiveWorkers

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 10.0
_TOGETHER: Final = 500


class HeldJobReleases:
    """A service that releases jobs whose calls differ from those of an earlier run, once per version of the app."""

    def __init__(self, app: TaskMQ, store: JobStore, workers: LiveWorkers) -> None:
        self._app = app
        self._store = store
        self._workers = workers
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Release jobs until `stop`. Waits until every live worker must have been heard."""
        while not await pause(self._is_stopping, _PERIOD):
            if not self._workers.knows_all:
                continue
            try:
                await self._work()
            except StoreUnavailable as error:
                _log.warning("store unavailable, will release held jobs later: %s", error)

    async def _work(self) -> None:
        after: str | None = None
        while jobs := await self._store.journals.held_jobs(after=after, limit=_TOGETHER):
            for job in jobs:
                live = self._workers.versions_of(job.queue)
                if can_be_released(job.tried, live):
                    await self._release(job, sorted(filter(None, live)))
            after = jobs[-1].id

    async def _release(self, job: HeldJob, versions: Collection[str]) -> None:
        record = await self._store.get(job.id)
        if record is None or not await self._is_held_by_code(record):
            return
        by = Actor(user="scheduler", via="python", address=socket.gethostname())
        note = f"workers run version {', '.join(versions)}"
        try:
            await self._app.jobs.arelease(record, version=record.version, by=by, note=note)
        except (JobConflict, JobNotFound) as error:
            _log.debug("job %s stays as it is: %s", job.id, error)
            return
        await self._store.journals.try_versions(job.id, versions)
        _log.info("job %s: released, %s", job.id, note)

    async def _is_held_by_code(self, record: JobRecord) -> bool:
        """Whether the last hold of the job was its run's, and not an operator's."""
        holds = [each.note for each in await self._store.events(record.id) if each.kind == "hold"]
        return bool(holds) and bool(record.suspension) and holds[-1] == record.suspension
