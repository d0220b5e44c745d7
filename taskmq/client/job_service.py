"""The questions that handles, the producer and workflows ask of an app's jobs, wherever those are."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from taskmq.client.progress import JobProgress
from taskmq.client.sent_jobs import SentJobs
from taskmq.contracts.stores import ResultRecord
from taskmq.middleware.chain import Sending
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration

__all__ = ["JobService", "Submitter"]


class Submitter(Protocol):
    """Takes calls that go to the store."""

    async def submit_sending(self, sending: Sending) -> None:
        """Keep a call that goes to the store. See `Call.send`.

        Raises:
            UnsupportedFeature: the app has no store.
        """
        ...

    async def named_sending(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        version: int | None = None,
        tenant: str = "",
    ) -> Sending:
        """The call, for the store, of what is called so: a task, or a definition in its last or this version.

        Args:
            tenant: whose definition and whose call it is; "": no tenant.

        Raises:
            UnknownTask: nothing is called so.
            InvalidArguments, EncodeError, InvalidOption: the arguments do not fit.
            UnsupportedFeature: the app has no store.
        """
        ...


class JobService(Submitter, Protocol):
    """The jobs of an app: `app.jobs`. Each question is about a job in the store, else about one that was sent.

    Each may raise `StoreUnavailable` and `StateUnavailable`, and `UnsupportedFeature` where the app has no state.
    """

    @property
    def sent(self) -> SentJobs:
        """The jobs that were sent, as the state knows them."""
        ...

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """The job's result record once it is there; None after `timeout` seconds.

        Raises:
            ResultTimeout: no timeout was given, and the sessions' patience is over.
        """
        ...

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record if it is there; without its value where that is kept elsewhere."""
        ...

    async def look_for_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record, with its value, if it is there."""
        ...

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """The last progress that the job's task has reported, if any."""
        ...

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
        """Return how far a job is, as far as it is known. See `Job.state`.

        Args:
            was_sent: the caller knows that the broker has it, or had it.

        Raises:
            ResultExpired: it has ended, and how is not kept any more.
        """
        ...

    async def cancel_job(
        self, job_id: str, *, reason: str, remember: Duration, was_sent: bool = False
    ) -> Cancellation:
        """Cancel a job wherever it is. See `Job.cancel`.

        Args:
            reason: for those who await its result, and for logs.
            remember: for how long workers end it when they meet it.
            was_sent: the caller knows that the broker has it, or had it.

        Raises:
            InvalidOption: the reason is too long.
            StateUnavailable: the state could not be reached; the job may be cancelled or not.
        """
        ...

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """Make a job that waits in the store or the state due at another instant; False where it does not wait."""
        ...
