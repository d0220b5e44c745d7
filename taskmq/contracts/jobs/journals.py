"""Progress and saved values of the runs of stored jobs."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from taskmq.contracts.stores.progress import ProgressRecord
from taskmq.model.history.journals import SaveAnswer, SavedValues
from taskmq.model.history.signals import JobSignal, SignalEffect
from taskmq.model.jobs.reports import Report


class HeldJob(NamedTuple):
    """A job that waits for its release because the code before its saved calls has changed.

    Attributes:
        tried: versions of the app that held it, or for which it was released.
    """

    id: str
    queue: str
    tried: set[str]


class JournalStore(Protocol):
    """Progress and saved values, written by schedulers from reports of workers.

    Only reports with the job's present token count; there is no epoch. Every method raises `StoreUnavailable` if the
    store cannot be reached.
    """

    async def report(self, reports: Sequence[Report]) -> None:
        """Replace the progress of these jobs. A power failure may undo it.

        A run that started earlier than the one that reported last changes nothing.
        """
        ...

    async def progress(self, ids: Sequence[str]) -> dict[str, ProgressRecord]:
        """Return the last progress of those of these jobs, live or ended, that have reported any."""
        ...

    async def save(self, reports: Sequence[Report]) -> list[SaveAnswer]:
        """Begin runs and save values in one transaction, in order; return the answers to those that are not ignored.

        Saved values are durable when this returns. Requests of unknown jobs have no answer.
        """
        ...

    async def values(self, ids: Sequence[str]) -> dict[str, SavedValues]:
        """Return the saved values of those of these jobs that have any, with the details of the last heartbeat."""
        ...

    async def signal(self, job_id: str, signal: JobSignal) -> SignalEffect | None:
        """Save a signal's value for the job, if it is live; return the effect, or None for other jobs.

        The saved values have one version more. A run may begin without it; when that run is suspended, the job runs
        again at once, because the run knows fewer saves (`Report.saves`).
        `taskmq.model.history.signals.place_signal` decides.
        """
        ...

    async def held_jobs(self, *, after: str | None = None, limit: int = 500) -> list[HeldJob]:
        """Return jobs that workers of known versions held (`Report.version`), by id, after this one."""
        ...

    async def try_versions(self, job_id: str, versions: Collection[str]) -> None:
        """Note that a job was released for these versions."""
        ...

    async def forget(self, ids: Sequence[str]) -> None:
        """Delete the saved values of those of these jobs that are not live."""
        ...
