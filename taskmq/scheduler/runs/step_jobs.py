"""Jobs of steps, built within the transaction that starts the steps."""

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.large_values import LargeArguments
from taskmq.contracts.jobs import JobDetail, NewJob
from taskmq.errors import TaskMQError, TooLarge, UnsupportedFeature
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import IN_PARTS
from taskmq.model.keys import tenant_key
from taskmq.model.outcome import error_line, message_of, type_name
from taskmq.model.runs.records import RunRecord, StepJob, StepKey
from taskmq.model.units import milliseconds_in
from taskmq.options.plans import CallPlan
from taskmq.options.step_options import decode_options
from taskmq.run.facts import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.target import SCHEDULE_LABEL
from taskmq.stored_jobs.named_calls import NamedCall, unread_sending
from taskmq.stored_jobs.new_jobs import new_job
from taskmq.stored_jobs.task_catalogue import RegisteredSignature
from taskmq.tasks.job_options import plan_job

_FRESH: Final = 5.0
# Of arguments that the store has, and the message refers to: a scheduler has hundreds of jobs in memory.
_LARGEST: Final = 64 * 1024 * 1024
_MOST_NAMED: Final = 5


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
        arguments: stores large arguments; None: they stay in the message.
    """

    def __init__(self, app: TaskMQ, *, longest: int, arguments: LargeArguments | None) -> None:
        self._app = app
        self._longest = longest
        self._arguments = arguments
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
        if step.parts:
            sending.envelope = replace(sending.envelope, v=IN_PARTS, parts=step.parts)
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
        self._check_size(job, step)
        return job

    def _check_size(self, job: NewJob, step: StepJob) -> None:
        """Check that the job fits into a message, or into the store if its message is to refer to the arguments.

        Raises:
            TooLarge: it does not.
        """
        is_referring = self._arguments is not None and self._arguments.may_be_large(job.body)
        limit = _LARGEST if is_referring else self._longest
        if len(job.body) > limit:
            what = f"job {job.id} of task {job.task}, with {_describe_sizes(step)},"
            remedy = "let the steps before return less, or references of your own"
            if not is_referring:
                remedy += ", or set args_inline= and results_at="
            raise TooLarge(len(job.body), limit, what, remedy=remedy)

    def _sending(self, run: RunRecord, step: StepJob, now: int) -> Sending:
        options = decode_options(step.options)
        if run.tenant:
            options["tenant"] = run.tenant
        known = self._app.tasks.get(step.task) or self._find_registered(step.task)
        if known is not None:
            call = NamedCall(self._app.jobs, step.task, known)
            if step.parts:
                return call.unread_submission(Raw(step.args), Raw(step.kwargs), options, now=now)
            args: list[Any] = msgspec.json.decode(step.args)
            kwargs: dict[str, Any] = msgspec.json.decode(step.kwargs)
            return call.submission(args, kwargs, options)
        # A worker that has the task reads the arguments.
        plan = plan_job(CallPlan(), options, task=step.task)
        return unread_sending(plan, step.task, Raw(step.args), Raw(step.kwargs), now=now)

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


def _describe_sizes(step: StepJob) -> str:
    """Return the sizes of the largest arguments."""
    args = msgspec.json.decode(step.args, type=list[Raw])
    kwargs = msgspec.json.decode(step.kwargs, type=dict[str, Raw])
    sizes = {f"argument {index}": len(bytes(value)) for index, value in enumerate(args, 1)}
    sizes |= {f"{name}=": len(bytes(value)) for name, value in kwargs.items()}
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_MOST_NAMED]
    return ", ".join(f"{name} of {sizes[name]:,} bytes" for name in largest)


def _name_of(key: StepKey) -> str:
    return f"{key.name}[{key.child}]" if key.is_child else key.name
