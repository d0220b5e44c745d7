"""Sent jobs of queues with `record="all"`, as the job store has recorded them: queries, cancellation, new times."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.client.sent_jobs import SentJobs
from taskmq.client.sessions import Sessions
from taskmq.contracts.history import Remembering, SentJobStore, history_of, sent_attempts, sent_record
from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import AttemptRecord, JobPage, JobRecord, all_attempts
from taskmq.errors import JobConflict
from taskmq.model.history.sent_runs import RecordedRun, RunReport
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration, to_datetime
from taskmq.stored_jobs.new_jobs import name_of

_CANCELLED: Final = "cancelled by an operator"
_NOT_WAITING: Final = (
    "does not wait for its time in the state: only jobs of apps with delay='state' can be rescheduled while they wait"
)
_NO_STATE: Final = "this needs a state, and the app of this server has none"


class RecordedJobs:
    """The recorded sent jobs of an app. Every method raises `StoreUnavailable`.

    Args:
        sent: changes them, as the state knows them.
    """

    def __init__(self, sessions: Sessions, sent: SentJobs) -> None:
        self._sessions = sessions
        self._sent = sent

    @property
    def store(self) -> SentJobStore:
        """The records of sent jobs in the job store.

        Raises:
            UnsupportedFeature: the job store keeps no history.
        """
        return history_of(self._sessions.store()).sent_jobs

    async def find(self, name: str) -> JobRecord | None:
        """Find a recorded job by its id, or by the id that its sender chose, with its tenant's prefix."""
        if not isinstance(self._sessions.store(), Remembering):
            return None
        found = await self.store.find(name)
        return None if found is None else sent_record(found)

    async def attempts(self, record: JobRecord) -> Sequence[AttemptRecord]:
        """Return all attempts of a job, stored or recorded, the earliest first."""
        if record.via == "store":
            return all_attempts(record, await self._sessions.store().attempts(record.id))
        found = await self.store.find(record.id)
        return [] if found is None else sent_attempts(found)

    async def cancel(
        self, record: JobRecord, *, version: int | None, remember: Duration, by: str | Actor, note: str
    ) -> JobRecord:
        """Cancel a recorded job as `Job.cancel` does, and return it.

        Raises:
            JobConflict: it has ended, or its version differs.
            UnsupportedFeature: the app has no state.
            StateUnavailable: the state could not be reached; the job may or may not be cancelled.
        """
        _check_version(record, version)
        reason = note or _CANCELLED
        effect = Cancellation.ENDED
        if not record.state.is_final:
            effect = await self._sent.cancel_job(name_of(record), reason=reason, remember=remember, was_sent=True)
        if effect is Cancellation.ENDED:
            raise _build_conflict(record, "has ended")
        await self._audit(record, "job.cancel", by=by, note=note)
        if effect is not Cancellation.CANCELLED:
            return replace(record, cancel_requested=reason)
        # It waited in the state: no worker will report its end.
        await self._add_cancellation(record, reason)
        return await self.find(record.id) or record

    async def reschedule(
        self, record: JobRecord, *, due: int, version: int | None, by: str | Actor, note: str
    ) -> JobRecord:
        """Make a recorded job that waits in the state due at another instant (ms), and return it.

        Raises:
            JobConflict: it does not wait in the state, or its version differs.
            UnsupportedFeature: the app has no state.
        """
        _check_version(record, version)
        if not await self._sent.reschedule_waiting(name_of(record), delay=None, eta=to_datetime(due)):
            raise _build_conflict(record, _NOT_WAITING)
        await self._audit(record, "job.change", by=by, note=note)
        return replace(record, due=due)

    async def refusals(self, record: JobRecord) -> dict[str, str]:
        """Return the actions on a recorded job that are impossible now, each with the reason; empty for a stored one.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        if record.via == "store":
            return {}
        found: dict[str, str] = dict.fromkeys(("hold", "release", "retry", "clone"), _only_sent(record))
        if self._sessions.current().state is None:
            return found | dict.fromkeys(("cancel", "change"), _NO_STATE)
        if record.state.is_final:
            return found | dict.fromkeys(("cancel", "change"), "it has ended")
        if await self._sent.find_waiting(name_of(record)) is None:
            found["change"] = f"it {_NOT_WAITING}"
        return found

    async def _add_cancellation(self, record: JobRecord, reason: str) -> None:
        if (found := await self.store.find(record.id)) is None:
            return
        # After the last run, whatever its worker's clock says.
        at = max(await self._sessions.store().now_ms(), found.last.started + 1)
        end = RecordedRun(
            attempt=found.last.attempt,
            started=at,
            ended=at,
            state=JobState.CANCELLED,
            error=ErrorRecord(type_name="JobCancelled", message=reason),
        )
        await self.store.add([RunReport(found.job, end)])

    async def _audit(self, record: JobRecord, action: str, *, by: str | Actor, note: str) -> None:
        if isinstance(by, Actor):
            entry = replace(by, note=note or by.note).entry(
                action, kind="job", subject=record.id, tenant=record.tenant
            )
            await self._sessions.store().identity.audit.add([entry])


def merge_pages(pages: Sequence[JobPage], limit: int) -> JobPage:
    """Merge pages of lists that began at the same cursor into one page of up to `limit` jobs, the newest first."""
    # A list says nothing about jobs behind its cursor.
    seen = max((page.after for page in pages if page.after is not None), default="")
    jobs = sorted((job for page in pages for job in page.jobs if job.id >= seen), key=_id_of, reverse=True)
    if len(jobs) > limit:
        return JobPage(jobs[:limit], jobs[limit - 1].id)
    is_bounded = any(page.is_bounded and page.after == seen for page in pages)
    return JobPage(jobs, seen or None, is_bounded=is_bounded)


def _id_of(record: JobRecord) -> str:
    return record.id


def check_stored(record: JobRecord) -> JobRecord:
    """Return the job if it is stored.

    Raises:
        JobConflict: it was sent to the broker.
    """
    if record.via == "broker":
        raise _build_conflict(record, _only_sent(record))
    return record


def _only_sent(record: JobRecord) -> str:
    advice = "; `taskmq dlq replay` runs it again" if record.state is JobState.FAILED else ""
    return f"was sent to the broker and is not in the store{advice}"


def _check_version(record: JobRecord, version: int | None) -> None:
    if version is not None and record.version != version:
        raise _build_conflict(record, f"has version {record.version}, not {version}: read it again")


def _build_conflict(record: JobRecord, reason: str) -> JobConflict:
    return JobConflict(f"job {record.key or record.id} {reason}", state=str(record.state), version=record.version)
