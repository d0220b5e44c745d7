"""What an app knows of jobs that were sent: results, progress, those that wait, and how they are cancelled."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from taskmq.client.cancel import cancel_job
from taskmq.client.sessions import Sessions
from taskmq.contracts.broker import Broadcasting
from taskmq.contracts.stores import ResultRecord, ResultStore
from taskmq.errors import UnsupportedFeature
from taskmq.jobs.delayed import WaitingJob, due_instant, reschedule, waiting_jobs
from taskmq.jobs.handle import Job
from taskmq.jobs.progress import JobProgress, progress_of
from taskmq.model.codec import ReturnType
from taskmq.model.commands import REVOKE, Command, command_topic, encode_command
from taskmq.model.units import Duration, parse_duration
from taskmq.options.task_options import TaskPlan

if TYPE_CHECKING:
    from taskmq.jobs.as_completed import AsCompleted

__all__ = ["JobService"]

R = TypeVar("R")


class JobService(Sessions, ABC):
    """A `taskmq.job.JobBackend`.

    Attributes:
        result_ttl: seconds; of tasks that do not say otherwise.
    """

    result_ttl: float

    @abstractmethod
    def plan_of(self, task: str) -> TaskPlan | None:
        """The plan of a task of this app, by its name; None where it is not one."""
        ...

    def job(self, job_id: str) -> Job[Any]:
        """A handle for a job that was sent before."""
        return Job(job_id, task="", backend=self, returns=ReturnType(Any))

    def results(self) -> ResultStore:
        """The result store of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        results = self.session().results
        if results is None:
            raise UnsupportedFeature(
                "results need a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        return results

    def as_completed(self, jobs: Iterable[Job[R]], *, timeout: Duration | None = None) -> "AsCompleted[R]":
        """`async for job, outcome in app.as_finished(jobs)`: each as soon as it has ended; with `for`, too.

        Args:
            timeout: for all together; `ResultTimeout` when some have not ended by then.
        """
        from taskmq.jobs.as_completed import AsCompleted

        return AsCompleted(jobs, timeout=timeout, run_sync=self.run_sync)

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None:
        """The job's result record once it is there; None after `timeout` seconds."""
        return await self.results().wait(job_id, timeout=timeout)

    async def find_result(self, job_id: str) -> ResultRecord | None:
        """The job's result record if it is there; without its value where that is kept elsewhere."""
        self.results()
        state = self.session().state
        return None if state is None else await state.results.get(job_id)

    async def has_expired(self, job_id: str) -> bool:
        """Whether the job has ended and its result is gone; False where that is not known any more."""
        return await self.results().has_expired(job_id)

    async def find_progress(self, job_id: str) -> JobProgress | None:
        """What the job's task has told last, if it has told anything."""
        state = self.session().state
        if state is None:
            raise UnsupportedFeature(
                "progress needs a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
            )
        record = await state.progress.find(job_id)
        return None if record is None else progress_of(record)

    def list_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """Up to `limit` jobs that wait for their time in the state, the earliest due first.

        Those that are on their way to their queue are among them.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        call = self.alist_waiting(limit=limit, task=task, queue=queue)
        return self.run_sync(call, instead="alist_waiting")

    async def alist_waiting(
        self, *, limit: int = 100, task: str | None = None, queue: str | None = None
    ) -> list[WaitingJob]:
        """`list_waiting` for coroutines."""
        return await waiting_jobs(self._delays(self.session().state), limit=limit, task=task, queue=queue)

    async def cancel_job(self, job_id: str, *, reason: str, remember: Duration) -> bool:
        """Cancel a job wherever it is; see `Job.cancel`."""
        return await cancel_job(
            self.session(),
            job_id,
            reason=reason,
            remember=parse_duration(remember, what="remember").total_seconds(),
            result_ttl=self.result_ttl_of,
            now=self.clock.now_ms(),
            keeps_result=self._keeps_result,
            say=self.say_cancelled,
        )

    def result_ttl_of(self, task: str) -> float:
        """Seconds for which the results of a task are kept, by its name."""
        plan = self.plan_of(task)
        return self.result_ttl if plan is None or plan.result_ttl is None else plan.result_ttl

    def _keeps_result(self, task: str) -> bool:
        plan = self.plan_of(task)
        return plan is None or plan.result is not False

    def say_cancelled(self, job_id: str) -> None:
        """Have the workers that listen look at once; the others look by themselves."""
        broker = self.session().broker
        if isinstance(broker, Broadcasting):
            command = Command(id=secrets.token_hex(8), name=REVOKE, job_id=job_id)
            broker.announce(command_topic(REVOKE), encode_command(command))

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool:
        """Make a job that waits in the state due at another instant; False where it does not wait."""
        due = due_instant(delay=delay, eta=eta, now=self.clock.now_ms())
        return await reschedule(self._delays(self.session().state), job_id, due=due)
