"""Sent jobs of an app: results, progress, delayed jobs, and cancellation.

A job can be cancelled anywhere: delayed in the state, in the broker, in a worker's backlog, or running. A delayed job
is removed at once. For all others the state records the cancellation, workers are notified, and the worker that has
or receives the job ends it as cancelled. Nothing is removed from the broker's queues.
"""

import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Final

from taskmq.client.delayed import cancel, cancelled_record, due_instant, reschedule
from taskmq.client.progress import JobProgress, progress_of
from taskmq.client.sessions import Sessions
from taskmq.client.unique import release_waiting
from taskmq.contracts.stores import ResultRecord, ResultStore, WaitingMessage, require_store
from taskmq.errors import InvalidOption, ResultExpired, ResultTimeout
from taskmq.model.commands import REVOKE, Command, command_topic, encode_command
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration, parse_duration
from taskmq.options.plans import TaskPlan

_REASON_LIMIT: Final = 500


class SentJobs:
    """Queries, cancels and reschedules sent jobs, as recorded in the state.

    Its methods implement `JobService`, which documents them; stored jobs are not included.

    Args:
        plan_of: returns the plan of a task of the app by name; None if the app has no such task.
    """

    def __init__(self, sessions: Sessions, *, plan_of: Callable[[str], TaskPlan | None]) -> None:
        self.sessions: Sessions = sessions
        self._plan_of = plan_of

    def results(self) -> ResultStore:
        """Return the result store of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        return require_store(self.sessions.current().stores.results, "results need")

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        patience = self.sessions.patience
        if timeout is not None or patience is None:
            return await self.results().wait(job_id, timeout=timeout)
        if (record := await self.results().wait(job_id, timeout=patience.seconds)) is None:
            raise ResultTimeout(f"job {job_id} has not ended within {patience.seconds:g} s: {patience.advice}")
        return record

    async def find_result(self, job_id: str) -> ResultRecord | None:
        self.results()
        state = self.sessions.current().state
        return None if state is None else await state.results.get(job_id)

    async def fetch_result(self, job_id: str) -> ResultRecord | None:
        return await self.results().get(job_id)

    async def has_expired(self, job_id: str) -> bool:
        """Return whether the job ended and its result is gone; False if that is no longer known."""
        return await self.results().has_expired(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        record = await require_store(self.sessions.current().stores.progress, "progress needs").find(job_id)
        return None if record is None else progress_of(record)

    async def state_of(self, job_id: str, *, was_sent: bool) -> JobState:
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
        """Return the message of a delayed job in the state, including one that is being published."""
        return await require_store(self.sessions.current().stores.delays, "jobs need").find(job_id)

    async def cancel_job(
        self,
        job_id: str,
        *,
        reason: str,
        remember: Duration,
        was_sent: bool = False,
        state: JobState | None = None,
    ) -> Cancellation:
        """See `JobService`; `state` is that of a stored job, of which the state may know an earlier run."""
        seconds = parse_duration(remember, what="remember").total_seconds()
        if len(reason) > _REASON_LIMIT:
            raise InvalidOption(f"reason: must be at most {_REASON_LIMIT} characters, not {len(reason)}")
        stores, what = self.sessions.current().stores, "cancelling needs"
        if (message := await cancel(require_store(stores.delays, what), job_id)) is not None:
            await release_waiting(require_store(stores.claims, what), message)
            if self._keeps_result(message.task):
                record = cancelled_record(message, reason=reason, now=self.sessions.clock.now_ms())
                await require_store(stores.results, what).put(record, ttl=self.result_ttl_of(message.task))
            return Cancellation.CANCELLED
        try:
            before = state or await self.state_of(job_id, was_sent=was_sent)
        except ResultExpired:
            return Cancellation.ENDED
        if before.is_final:
            return Cancellation.ENDED
        await require_store(stores.revocations, what).revoke(job_id, reason=reason, ttl=seconds)
        self.announce_cancellation(job_id)
        return Cancellation.UNKNOWN if before is JobState.UNKNOWN else Cancellation.REQUESTED

    def result_ttl_of(self, task: str) -> float:
        """Return how long results of a task are kept, in seconds."""
        plan = self._plan_of(task)
        return self.sessions.result_ttl if plan is None or plan.result_ttl is None else plan.result_ttl

    def _keeps_result(self, task: str) -> bool:
        plan = self._plan_of(task)
        return plan is None or plan.result is not False

    def announce_cancellation(self, job_id: str, reason: str = "") -> None:
        """Notify listening workers to check the state at once; the others poll.

        Args:
            reason: the reason, for a stored job without a state, whose workers stop it.
        """
        if (announcer := self.sessions.current().announcer) is not None:
            command = Command(id=secrets.token_hex(8), name=REVOKE, job_id=job_id, reason=reason)
            announcer.announce(command_topic(REVOKE), encode_command(command))

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        due = due_instant(delay=delay, eta=eta, now=self.sessions.clock.now_ms())
        return await reschedule(self.sessions.delays(), job_id, due=due)
