"""What an app knows of jobs that were sent: results, progress, those that wait, and how they are cancelled.

A job is cancelled wherever it is: waiting in the state, at the broker, in a worker's hands, or running. One that
waits in the state is taken away there and then. For every other the state remembers the wish, workers hear of it, and
the worker that has the job, or gets it, ends it as cancelled. Nothing is taken out of the broker's queues.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskmq.client.delayed import WaitingJob, cancel, cancelled_record, due_instant, reschedule, waiting_jobs
from taskmq.client.progress import JobProgress, progress_of
from taskmq.client.sessions import Sessions, blocking
from taskmq.client.unique import release_waiting
from taskmq.contracts.stores import ResultRecord, ResultStore, WaitingMessage, require_store
from taskmq.errors import InvalidOption, ResultExpired, ResultTimeout
from taskmq.middleware.chain import Sending
from taskmq.model.commands import REVOKE, Command, command_topic, encode_command
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration, parse_duration
from taskmq.options.task_options import TaskPlan

__all__ = ["JobService"]

_REASON_LIMIT: Final = 500


class JobService:
    """Answers questions about jobs, and cancels and reschedules them: what `Job` handles ask.

    Args:
        plan_of: the plan of a task of the app, by its name; None where it has none of that name.

    Attributes:
        result_ttl: for how many seconds the results are kept of tasks that do not say otherwise.
    """

    def __init__(
        self, sessions: Sessions, *, plan_of: Callable[[str], TaskPlan | None], result_ttl: Duration = "1d"
    ) -> None:
        self.result_ttl: float = parse_duration(result_ttl, what="result_ttl").total_seconds()
        self.sessions: Sessions = sessions
        self._plan_of = plan_of

    async def submit_sending(self, sending: Sending) -> None:
        """Keep a call that goes to the store. See `Call.send`.

        Raises:
            UnsupportedFeature: the app has no store.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    @property
    def _sessions(self) -> Sessions:
        return self.sessions

    def results(self) -> ResultStore:
        """The result store of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        return require_store(self.sessions.current().stores.results, "results need")

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """The job's result record once it is there; None after `timeout` seconds.

        Raises:
            ResultTimeout: no timeout was given, and the sessions' patience is over.
        """
        patience = self.sessions.patience
        if timeout is not None or patience is None:
            return await self.results().wait(job_id, timeout=timeout)
        if (record := await self.results().wait(job_id, timeout=patience.seconds)) is None:
            raise ResultTimeout(f"job {job_id} has not ended within {patience.seconds:g} s: {patience.advice}")
        return record

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record if it is there; without its value where that is kept elsewhere."""
        self.results()
        state = self.sessions.current().state
        return None if state is None else await state.results.get(job_id)

    async def look_for_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record, with its value, if it is there."""
        return await self.results().get(job_id)

    async def has_expired(self, job_id: str) -> bool:
        """Whether the job has ended and its result is gone; False where that is not known any more."""
        return await self.results().has_expired(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """The last progress that the job's task has reported, if any."""
        record = await require_store(self.sessions.current().stores.progress, "progress needs").find(job_id)
        return None if record is None else progress_of(record)

    async def alist_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """Up to `limit` jobs that wait for their time in the state, the earliest due first.

        Those that are on their way to their queue are among them.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await waiting_jobs(self.sessions.delays(), limit=limit, task=task, queue=queue)

    list_waiting = blocking(alist_waiting)

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
        """How far a job is, as far as the state knows. See `Job.state`.

        Args:
            was_sent: the caller knows that the broker has it, or had it.

        Raises:
            ResultExpired: it has ended, and how is not kept any more.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        if (record := await self.find_result(job_id)) is not None:
            return record.state
        if await self.has_expired(job_id):
            raise ResultExpired(job_id)
        if (message := await self.find_waiting(job_id)) is not None:
            attempt = decode_envelope(message.body, message.content_type).attempt
            return JobState.RETRYING if attempt > 1 else JobState.SCHEDULED
        if (progress := await self.find_progress(job_id)) is not None:
            return progress.state
        return JobState.QUEUED if was_sent else JobState.UNKNOWN

    async def find_waiting(self, job_id: str) -> WaitingMessage | None:
        """The job's message where it waits for its time in the state, or is on its way from there."""
        return await require_store(self.sessions.current().stores.delays, "jobs need").find(job_id)

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
            UnsupportedFeature: the app has no state.
        """
        seconds = parse_duration(remember, what="remember").total_seconds()
        if len(reason) > _REASON_LIMIT:
            raise InvalidOption(f"reason: at most {_REASON_LIMIT} characters, these are {len(reason)}")
        stores, what = self.sessions.current().stores, "cancelling needs"
        if (message := await cancel(require_store(stores.delays, what), job_id)) is not None:
            await release_waiting(require_store(stores.claims, what), message)
            if self._keeps_result(message.task):
                record = cancelled_record(message, reason=reason, now=self.sessions.clock.now_ms())
                await require_store(stores.results, what).put(record, ttl=self.result_ttl_of(message.task))
            return Cancellation.CANCELLED
        try:
            before = await self.state_of(job_id, was_sent=was_sent)
        except ResultExpired:
            return Cancellation.ENDED
        if before.is_final:
            return Cancellation.ENDED
        await require_store(stores.revocations, what).revoke(job_id, reason=reason, ttl=seconds)
        self.say_cancelled(job_id)
        return Cancellation.UNKNOWN if before is JobState.UNKNOWN else Cancellation.REQUESTED

    def result_ttl_of(self, task: str) -> float:
        """Seconds for which the results of a task are kept, by its name."""
        plan = self._plan_of(task)
        return self.result_ttl if plan is None or plan.result_ttl is None else plan.result_ttl

    def _keeps_result(self, task: str) -> bool:
        plan = self._plan_of(task)
        return plan is None or plan.result is not False

    def say_cancelled(self, job_id: str, reason: str = "") -> None:
        """Have the workers that listen look into the state at once; the others look by themselves.

        Args:
            reason: of a job of the store without a state: workers that run it stop it.
        """
        if (announcer := self.sessions.current().announcer) is not None:
            command = Command(id=secrets.token_hex(8), name=REVOKE, job_id=job_id, reason=reason)
            announcer.announce(command_topic(REVOKE), encode_command(command))

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """Make a job that waits in the state due at another instant; False where it does not wait."""
        due = due_instant(delay=delay, eta=eta, now=self.sessions.clock.now_ms())
        return await reschedule(self.sessions.delays(), job_id, due=due)
