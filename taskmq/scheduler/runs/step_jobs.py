"""Jobs of steps, built within the transaction that starts the steps."""

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobDetail, NewJob
from taskmq.errors import TaskMQError, TooLarge, UnsupportedFeature
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON
from taskmq.model.keys import tenant_key
from taskmq.model.outcome import error_line, message_of, type_name
from taskmq.model.runs.records import RunRecord, StepJob, StepKey
from taskmq.model.units import milliseconds_in
from taskmq.options.step_options import decode_options
from taskmq.options.task_options import CallPlan
from taskmq.run.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.target import SCHEDULE_LABEL
from taskmq.stored_jobs.named_calls import NamedCall
from taskmq.stored_jobs.new_jobs import new_job
from taskmq.stored_jobs.task_catalogue import RegisteredSignature
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.job_options import plan_job, submission_of

__all__ = ["StepJobs", "UnloadedTask"]

_FRESH: Final = 5.0


class UnloadedTask(Exception):
    """Raised within a transaction when the task of a step has to be read first."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name: str = name


class StepJobs:
    """Builds jobs of steps: of the app's own tasks, of registered tasks, and of others by their options alone.

    Stores may call `make` in any thread.

    Args:
        longest: maximum size of a job's message.
    """

    def __init__(self, app: TaskMQ, *, longest: int) -> None:
        self._app = app
        self._longest = longest
        self._registered: dict[str, tuple[float, RegisteredSignature | None]] = {}

    async def load(self, task: str) -> None:
        """Read the registration of a task, for the next five seconds."""
        try:
            signature = await self._app.jobs.catalogue.signature(task)
        except UnsupportedFeature:
            signature = None
        self._registered[task] = (self._app.sessions.clock.monotonic(), signature)

    def make(self, run: RunRecord, step: StepJob, *, now: int) -> NewJob:
        """Build the job of a step.

        Args:
            now: the store's time, ms since the epoch.

        Raises:
            UnloadedTask: `load` has to read the task first.
            TaskMQError: the step cannot have a job; the error says why.
        """
        try:
            return self._make(run, step, now)
        except (TaskMQError, UnloadedTask):
            raise
        except BaseException as error:  # noqa: BLE001 - code of the app may raise anything
            raise TaskMQError(error_line(type_name(error), message_of(error))) from None

    def _make(self, run: RunRecord, step: StepJob, now: int) -> NewJob:
        sending = self._sending(run, step, now)
        public = tenant_key(run.tenant or None, run.id)
        step_of = f"{public}/{_name_of(step.key)}"
        sending.envelope = replace(sending.envelope, id=step.id, root=public, step_of=step_of, enqueued=now)
        if run.scheduled_for and (schedule := run.labels.get(SCHEDULE_LABEL)):
            instant = str(milliseconds_in(run.scheduled_for))
            said = {SCHEDULE_NAME: tenant_key(run.tenant or None, schedule), SCHEDULED_FOR: instant}
            sending.envelope = replace(sending.envelope, meta={**(sending.envelope.meta or {}), **said})
        submission = sending.submission or Submission()
        detail = submission.detail or JobDetail()
        detail = replace(detail, step_of=step_of, labels={**run.labels, **detail.labels})
        sending.submission = replace(submission, detail=detail)
        with self._app.producer.send_context(sending):
            job = self._job_of(sending, now)
        if len(job.body) > self._longest:
            raise TooLarge(len(job.body), self._longest, f"job {job.id} of task {job.task}")
        return job

    def _sending(self, run: RunRecord, step: StepJob, now: int) -> Sending:
        options = decode_options(step.options)
        if run.tenant:
            options["tenant"] = run.tenant
        known = self._app.tasks.get(step.task) or self._find_registered(step.task)
        if known is not None:
            args: list[Any] = msgspec.json.decode(step.args)
            kwargs: dict[str, Any] = msgspec.json.decode(step.kwargs)
            return NamedCall(self._app.jobs, step.task, known).submission(args, kwargs, options)
        # A worker that has the task reads the arguments.
        plan = plan_job(CallPlan(), options, task=step.task)
        envelope = envelope_of(
            plan, step.task, Raw(step.args), Raw(step.kwargs), plan.idempotency_key, plan.order_key, now
        )
        return Sending(envelope, plan.queue, JSON, submission=submission_of(plan, compared=None, task=step.task))

    def _find_registered(self, task: str) -> RegisteredSignature | None:
        found = self._registered.get(task)
        if found is None or self._app.sessions.clock.monotonic() - found[0] > _FRESH:
            raise UnloadedTask(task)
        return found[1]

    def _job_of(self, sending: Sending, now: int) -> NewJob:
        task = self._app.tasks.get(sending.envelope.task)
        return new_job(
            sending,
            self._app.producer.queue(sending.queue),
            now=now,
            resources=None if task is None else task.plan.resources,
        )


def _name_of(key: StepKey) -> str:
    return f"{key.name}[{key.child}]" if key.is_child else key.name
