"""Resolution of names to calls: of the app's tasks, of registered tasks, or of definitions.

    name -> the app's own task -> its signature and options
         -> a registered task  -> its schema and queue
         -> a definition of the tenant -> one of these two, with its arguments and options

Names are resolved in this order, so a task always takes precedence over a definition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from taskmq.client.job_service import JobService
from taskmq.contracts.jobs import JobDetail, JobRecord, NewJob
from taskmq.errors import EncodeError, InvalidArguments, InvalidOption, UnknownTask
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON
from taskmq.model.jobs.definitions import Definition, DefinitionContent, merge_call
from taskmq.model.states import JobState
from taskmq.model.units import did_you_mean
from taskmq.model.values.canonical_form import canonical_json
from taskmq.model.values.return_type import PLAIN, ReturnType
from taskmq.options.plans import CallPlan
from taskmq.stored_jobs.new_jobs import name_of
from taskmq.stored_jobs.task_catalogue import RegisteredSignature, TaskCatalogue, catalogue_of
from taskmq.tasks.call import Arguments, Call
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.job_options import JOB_ONLY, JobOptions, JobPlan, plan_job, submission_of
from taskmq.tasks.registration import derived_keys
from taskmq.tasks.task import Task
from taskmq.tasks.tasks import Tasks

_DEFINITION_OPTIONS: Final = tuple(
    name for name in DefinitionContent.__struct_fields__ if name in JobOptions.__annotations__
)


class NamedCall:
    """A resolved name, ready to be called.

    Args:
        jobs: jobs of the app.
        name: the name that was resolved.
        known: the app's task, or the signature of a registered one.
        definition: the definition, if the name is that of one.
    """

    def __init__(
        self,
        jobs: JobService,
        name: str,
        known: Task[..., Any] | RegisteredSignature,
        definition: Definition | None = None,
    ) -> None:
        self._jobs = jobs
        self._name = name
        self._known = known
        self.definition = definition

    @property
    def task(self) -> str:
        """Name of the task that its jobs run."""
        return self._known.name if isinstance(self._known, Task) else self._known.registration.task

    @property
    def queue(self) -> str:
        """Queue of its jobs, unless a submission overrides it."""
        if self.definition is not None and self.definition.content.queue:
            return self.definition.content.queue
        return self._known.queue if isinstance(self._known, Task) else self._known.registration.queue

    def open_names(self, count: int) -> frozenset[str]:
        """Return the parameters that may be given by name after this many positional arguments.

        A definition has none.
        """
        if self.definition is not None:
            return frozenset()
        if isinstance(self._known, Task):
            return self._known.open_names(count)
        return self._known.names - set(self._known.registration.positional[:count])

    def handle(self, job_id: str) -> Job[Any]:
        """Build the handle of a job of this call."""
        if isinstance(self._known, Task):
            return self._known.handle(job_id)
        return Job(job_id, task=self._known.registration.task, jobs=lambda: self._jobs, returns=ReturnType(Any))

    def submissions(self, calls: Iterable[Arguments], options: Mapping[str, Any]) -> Iterator[Sending]:
        """Build the submissions of many calls with the same options.

        Raises:
            InvalidArguments: one of them is not a call.
        """
        for call in calls:
            if isinstance(call, str | bytes):
                raise InvalidArguments(
                    f"{self._name}: a {type(call).__name__} is not a call; give (1, 2) or a mapping"
                )
            if isinstance(call, Mapping):
                yield self.submission((), call, options)
            else:
                yield self.submission(call, {}, options)

    def submission(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Sending:
        """Build a submission; the arguments and options override those of a definition.

        Args:
            args, kwargs: arguments of the call, which may be encoded values.
            options: options as in `JobOptions`.

        Raises:
            InvalidArguments, EncodeError, InvalidOption: the task does not accept them.
        """
        plan, found = self._task_plan, self.definition
        if found is None:
            return self._sending(args, kwargs, plan_job(plan, options, task=self.task))
        requested = _encode_request(self._name, args, kwargs, options)
        plan = plan_job(plan, _options_of(found.content), task=self.task)
        given, named = merge_call(found.content, tuple(args), kwargs)
        sending = self._sending(given, named, plan_job(plan, options, task=self.task))
        submission = sending.submission or Submission()
        sending.submission = replace(
            submission,
            detail=replace(submission.detail or JobDetail(), definition=found.name, definition_version=found.version),
            asked_for=requested,
        )
        return sending

    def unread_submission(
        self, args: msgspec.Raw, kwargs: msgspec.Raw, options: Mapping[str, Any], *, now: int
    ) -> Sending:
        """Build a submission whose arguments only a worker can read.

        Args:
            now: ms since the epoch.

        Raises:
            InvalidOption: an option is invalid, or the task derives a key from its arguments.
        """
        if isinstance(self._known, Task) and (keys := derived_keys(self._known)):
            raise InvalidOption(
                f"task {self.task} has {', '.join(f'{each}=' for each in keys)}, which needs all arguments, and one "
                "is at results_at=: let the step before return less, or a reference of your own"
            )
        return unread_sending(plan_job(self._task_plan, options, task=self.task), self.task, args, kwargs, now=now)

    @property
    def _task_plan(self) -> CallPlan:
        """Options of the task's calls.

        Raises:
            InvalidOption: it has options that need its code, which is elsewhere.
        """
        if isinstance(self._known, Task):
            return self._known.call_plan
        registration, facts = self._known.registration, self._known.registration.facts
        if facts.needs_code:
            raise InvalidOption(
                f"task {registration.task} has {', '.join(f'{each}=' for each in facts.needs_code)}, which needs the "
                "task's own code: submit it from an app that has the task"
            )
        return CallPlan(
            queue=registration.queue,
            priority=facts.priority,
            delay=facts.delay,
            expires=facts.expires,
            tenant=facts.tenant,
            meta=dict(facts.meta) or None,
            **bounds_of(self._known),
        )

    def _sending(self, args: Sequence[Any], kwargs: Mapping[str, Any], plan: CallPlan) -> Sending:
        if isinstance(self._known, Task):
            raw_args, raw_kwargs = _encode_arguments(self.task, args, kwargs)
            positional, named = self._known.signature.decode(raw_args, raw_kwargs, JSON)
            return Call(self._known, plan).submission(*positional, **named)
        raw_args, raw_kwargs = self._known.encode(args, kwargs)
        now = self._jobs.sent.sessions.clock.now_ms()
        envelope = envelope_of(plan, self.task, raw_args, raw_kwargs, plan.idempotency_key, plan.order_key, now)
        compared = None
        if plan.job_id is not None:
            compared = msgspec.Raw(canonical_json(list(args))), msgspec.Raw(canonical_json(dict(kwargs)))
        return Sending(envelope, plan.queue, JSON, submission=submission_of(plan, compared=compared, task=self.task))


class NamedCalls:
    """Resolver of task and definition names.

    Args:
        tasks: tasks of the app.
    """

    def __init__(self, jobs: JobService, tasks: Tasks, catalogue: TaskCatalogue) -> None:
        self._jobs = jobs
        self._tasks = tasks
        self._catalogue = catalogue

    async def find(self, name: str, *, tenant: str = "", version: int | None = None) -> NamedCall:
        """Resolve a name. Definitions are those of the tenant, in the given version or the last one.

        Raises:
            UnknownTask: there is neither a task nor a definition of that name.
        """
        if (known := await self.find_task(name)) is not None:
            return NamedCall(self._jobs, name, known)
        definition = await catalogue_of(self._jobs.sent.sessions).definitions.get(tenant, name, version=version)
        if definition is None:
            hint = (
                did_you_mean(name, sorted(self._tasks)) if self._tasks else "`taskmq task list` shows the known ones"
            )
            raise UnknownTask(f"there is no task or definition {name[:200]!r}: {hint}")
        if (known := await self.find_task(definition.content.task)) is None:
            raise UnknownTask(
                f"definition {name!r} has task {definition.content.task!r}, which neither the app nor a worker has"
            )
        return NamedCall(self._jobs, name, known, definition)

    def handle(
        self, record: JobRecord | NewJob, existing: JobState | None = None, *, reattached: int = 0
    ) -> Job[Any]:
        """Build the handle of a stored job; `existing` is its state if this call did not create it."""
        task = self._tasks.get(record.task)
        returns = ReturnType(Any) if task is None else task.returns
        job: Job[Any] = Job(name_of(record), task=record.task, jobs=lambda: self._jobs, returns=returns)
        job.existing = existing
        job.reattached = reattached
        return job

    async def find_task(self, name: str) -> Task[..., Any] | RegisteredSignature | None:
        """Return the app's task, else the registered signature; None if there is neither."""
        return self._tasks.get(name) or await self._catalogue.signature(name)


def unread_sending(plan: CallPlan, task: str, args: msgspec.Raw, kwargs: msgspec.Raw, *, now: int) -> Sending:
    """Build a submission of a task whose arguments only a worker can read.

    Args:
        now: ms since the epoch.
    """
    envelope = envelope_of(plan, task, args, kwargs, plan.idempotency_key, plan.order_key, now)
    return Sending(envelope, plan.queue, JSON, submission=submission_of(plan, compared=None, task=task))


def bounds_of(task: Task[..., Any] | RegisteredSignature) -> dict[str, Any]:
    """Return the bounds that a task sets for the options of its calls, as fields of `CallPlan`."""
    if isinstance(task, Task):
        return {"longest": task.call_plan.longest, "runs_once": task.call_plan.runs_once}
    facts = task.registration.facts
    longest = None if facts.timeout is None else round(facts.timeout * 1000)
    return {"longest": longest, "runs_once": facts.ack == "early"}


def _options_of(content: DefinitionContent) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(content, name) for name in _DEFINITION_OPTIONS}
    if content.expires is not None:
        found["expires"] = timedelta(milliseconds=content.expires)
    return {name: value for name, value in found.items() if value not in (None, "", {})}


def _encode_request(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> bytes:
    """Encode a request for comparison with other requests, independent of the definition's version."""
    of_call = {option: value for option, value in options.items() if option not in JOB_ONLY}
    of_job = plan_job(JobPlan(), {option: options[option] for option in JOB_ONLY & options.keys()}, task=name)
    facts = [name, args, kwargs, of_call, msgspec.to_builtins(of_job.detail)]
    try:
        plain = msgspec.json.decode(canonical_json(facts))
    except EncodeError as error:
        raise EncodeError(f"definition {name}: {error}") from error.__cause__
    return msgspec.json.encode(plain, order="deterministic")


def _encode_arguments(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[msgspec.Raw, msgspec.Raw]:
    try:
        return msgspec.Raw(PLAIN.encode(list(args), JSON)), msgspec.Raw(PLAIN.encode(dict(kwargs), JSON))
    except EncodeError as error:
        raise EncodeError(f"task {task}: {error}") from error.__cause__
