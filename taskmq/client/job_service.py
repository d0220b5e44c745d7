"""Queries about an app's jobs by handles, the producer and workflows, wherever the jobs are."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from taskmq.client.progress import JobProgress
from taskmq.client.sent_jobs import SentJobs
from taskmq.contracts.stores import ResultRecord
from taskmq.middleware.chain import Sending
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration


class Submitter(Protocol):
    """Accepts calls that are submitted to the store."""

    async def submit_sending(self, sending: Sending) -> None:
        """Submit a call to the store. See `Call.send`.

        Raises:
            UnsupportedFeature: the app has no store.
        """
        ...

    async def named_sending(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        version: int | None = None,
        tenant: str = "",
    ) -> Sending:
        """Build the store's call of a task or definition by name; a definition in its latest or the given version.

        Args:
            options: options of the call, as in `JobOptions`.
            tenant: the tenant of the definition and the call; "" for none.

        Raises:
            UnknownTask: no task or definition has the name.
            InvalidArguments, EncodeError, InvalidOption: the arguments are invalid.
            UnsupportedFeature: the app has no store.
        """
        ...


class JobService(Submitter, Protocol):
    """The jobs of an app: `app.jobs`. Each method looks in the store first, then among sent jobs.

    All may raise `StoreUnavailable` and `StateUnavailable`, and `UnsupportedFeature` if the app has no state.
    """

    @property
    def sent(self) -> SentJobs:
        """The sent jobs, as recorded in the state."""
        ...

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """Wait for the job's result record; returns None after `timeout` seconds.

        Raises:
            ResultTimeout: no timeout was given, and the sessions' patience is over.
        """
        ...

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """Return the job's result record if it exists, without a value that is stored elsewhere."""
        ...

    async def fetch_result(self, job_id: str) -> ResultRecord | None:
        """Return the job's result record with its value, if it exists."""
        ...

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """Return the last progress report of the job's task, if any."""
        ...

    async def find_stored(self, job_id: str) -> tuple[JobState, JobProgress | None] | None:
        """Return the state and the progress of a stored job; None if the store has no such job."""
        ...

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
        """Return the state of a job, as far as it is known. See `Job.state`.

        Args:
            was_sent: whether the caller knows that the job was sent to the broker.

        Raises:
            ResultExpired: the job ended, and its result is no longer stored.
        """
        ...

    async def cancel_job(
        self, job_id: str, *, reason: str, remember: Duration, was_sent: bool = False
    ) -> Cancellation:
        """Cancel a job wherever it is. See `Job.cancel`.

        Args:
            reason: the reason, for callers that await its result, and for logs.
            remember: how long workers end the job when they receive it.
            was_sent: whether the caller knows that the job was sent to the broker.

        Raises:
            InvalidOption: the reason is too long.
            StateUnavailable: the state is unreachable; the job may or may not be cancelled.
        """
        ...

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """Make a delayed job due at another time. Returns False if it is not delayed."""
        ...
