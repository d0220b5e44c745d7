"""From a name to a job: of a task whose code is here, of one that is registered, or of a definition.

    name -> the app's own task -> its signature and options
         -> a registered task  -> its schema and queue
         -> a definition of the tenant -> one of these two, with its arguments and options

In this order, so that a name that is given to a task later goes on to mean what tasks mean.
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
from taskmq.model.codec import PLAIN, ReturnType, Signature
from taskmq.model.envelope import JSON
from taskmq.model.jobs.definitions import Definition, DefinitionContent, merge_call
from taskmq.model.states import JobState
from taskmq.model.units import did_you_mean
from taskmq.model.values.canonical_form import canonical_json
from taskmq.options.task_options import CallPlan
from taskmq.stored_jobs.new_jobs import name_of
from taskmq.stored_jobs.task_catalogue import RegisteredSignature, TaskCatalogue, catalogue_of
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.job_options import JOB_ONLY, JobOptions, JobPlan, plan_job, submission_of
from taskmq.tasks.task import Arguments, Call, Task
from taskmq.tasks.tasks import Tasks

__all__ = ["NamedCall", "NamedCalls"]

_OF_DEFINITIONS: Final = tuple(
    name for name in DefinitionContent.__struct_fields__ if name in JobOptions.__annotations__
)


class NamedCall:
    """What a name refers to, ready to be called.

    Args:
        jobs: of the app.
        name: that was asked for.
        known: the app's own task, or how a registered one is called.
        definition: by which it was found.
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
        """The name of the task that its jobs run."""
        return self._known.name if isinstance(self._known, Task) else self._known.registration.task

    @property
    def queue(self) -> str:
        """Where its jobs wait, unless a submission says otherwise."""
        if self.definition is not None and self.definition.content.queue:
            return self.definition.content.queue
        return self._known.queue if isinstance(self._known, Task) else self._known.registration.queue

    def open_names(self, count: int) -> frozenset[str]:
        """The parameters that can be given by name beside so many positional arguments; none of a definition's."""
        if self.definition is not None:
            return frozenset()
        if isinstance(self._known, Task):
            return self._known.open_names(count)
        return self._known.names - set(self._known.registration.positional[:count])

    def handle(self, job_id: str) -> Job[Any]:
        """The handle of a job that was made by it."""
        if isinstance(self._known, Task):
            return self._known.handle(job_id)
        return Job(job_id, task=self._known.registration.task, jobs=self._jobs, returns=ReturnType(Any))

    def submissions(self, calls: Iterable[Arguments], options: Mapping[str, Any]) -> Iterator[Sending]:
        """Build `submission` of each of many calls, all with the same options.

        Raises:
            InvalidArguments: one is no call.
        """
        for call in calls:
            if isinstance(call, str | bytes):
                raise InvalidArguments(
                    f"{self._name}: a {type(call).__name__} is no call, but (1, 2) or a mapping is"
                )
            if isinstance(call, Mapping):
                yield self.submission((), call, options)
            else:
                yield self.submission(call, {}, options)

    def submission(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Sending:
        """A call with these over the definition's own; the arguments may be encoded values.

        Args:
            options: as `JobOptions`.

        Raises:
            InvalidArguments, EncodeError, InvalidOption: they do not fit.
        """
        plan, found = self._task_plan, self.definition
        if found is None:
            return self._sending(args, kwargs, plan_job(plan, options, task=self.task))
        asked_for = _asked_for(self._name, args, kwargs, options)
        plan = plan_job(plan, _options_of(found.content), task=self.task)
        given, named = merge_call(found.content, tuple(args), kwargs)
        sending = self._sending(given, named, plan_job(plan, options, task=self.task))
        told = sending.submission or Submission()
        sending.submission = replace(
            told,
            detail=replace(told.detail or JobDetail(), definition=found.name, definition_version=found.version),
            asked_for=asked_for,
        )
        return sending

    @property
    def _task_plan(self) -> CallPlan:
        if isinstance(self._known, Task):
            return self._known.call_plan
        registration, facts = self._known.registration, self._known.registration.facts
        if facts.needs_code:
            raise InvalidOption(
                f"task {registration.task} has {', '.join(f'{each}=' for each in facts.needs_code)}, whose keys only "
                "its own code makes: submit it from an app that has it"
            )
        return CallPlan(
            queue=registration.queue,
            priority=facts.priority,
            delay=facts.delay,
            expires=facts.expires,
            tenant=facts.tenant,
            meta=dict(facts.meta) or None,
        )

    def _sending(self, args: Sequence[Any], kwargs: Mapping[str, Any], plan: CallPlan) -> Sending:
        if isinstance(self._known, Task):
            raw_args, raw_kwargs = _encoded(self.task, args, kwargs)
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
    """Finds what names stand for.

    Args:
        tasks: of the app.
    """

    def __init__(self, jobs: JobService, tasks: Tasks, catalogue: TaskCatalogue) -> None:
        self._jobs = jobs
        self._tasks = tasks
        self._catalogue = catalogue

    async def find(self, name: str, *, tenant: str = "", version: int | None = None) -> NamedCall:
        """What the name refers to; a definition is one of the tenant's, in its last version or this one.

        Raises:
            UnknownTask: nothing is called so.
        """
        if (known := await self.find_task(name)) is not None:
            return NamedCall(self._jobs, name, known)
        definition = await catalogue_of(self._jobs.sent.sessions).definitions.get(tenant, name, version=version)
        if definition is None:
            hint = (
                did_you_mean(name, sorted(self._tasks)) if self._tasks else "`taskmq task list` says which there are"
            )
            raise UnknownTask(f"there is no task {name[:200]!r}, and no definition of that name: {hint}")
        if (known := await self.find_task(definition.content.task)) is None:
            raise UnknownTask(
                f"definition {name!r} is of task {definition.content.task!r}, which neither the app nor a worker has"
            )
        return NamedCall(self._jobs, name, known, definition)

    def handle(self, record: JobRecord | NewJob, existing: JobState | None = None) -> Job[Any]:
        """A handle for a job of the store, which was made by this call unless it is `existing`."""
        task = self._tasks.get(record.task)
        returns = ReturnType(Any) if task is None else task.returns
        job: Job[Any] = Job(name_of(record), task=record.task, jobs=self._jobs, returns=returns)
        job.existing = existing
        return job

    async def signature(self, name: str) -> Signature | RegisteredSignature | None:
        """How a task is called; None where neither the app nor the store knows it."""
        found = await self.find_task(name)
        return found.signature if isinstance(found, Task) else found

    async def find_task(self, name: str) -> Task[..., Any] | RegisteredSignature | None:
        """The app's task, else what is registered; None where neither has it."""
        return self._tasks.get(name) or await self._catalogue.signature(name)


def _options_of(content: DefinitionContent) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(content, name) for name in _OF_DEFINITIONS}
    if content.expires is not None:
        found["expires"] = timedelta(milliseconds=content.expires)
    return {name: value for name, value in found.items() if value not in (None, "", {})}


def _asked_for(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> bytes:
    """Tell a submission from others as it was asked for, whichever version the definition has by then."""
    of_call = {option: value for option, value in options.items() if option not in JOB_ONLY}
    of_job = plan_job(JobPlan(), {option: options[option] for option in JOB_ONLY & options.keys()}, task=name)
    facts = [name, args, kwargs, of_call, msgspec.to_builtins(of_job.detail)]
    try:
        plain = msgspec.json.decode(canonical_json(facts))
    except EncodeError as error:
        raise EncodeError(f"definition {name}: {error}") from error.__cause__
    return msgspec.json.encode(plain, order="deterministic")


def _encoded(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[msgspec.Raw, msgspec.Raw]:
    try:
        return msgspec.Raw(PLAIN.encode(list(args), JSON)), msgspec.Raw(PLAIN.encode(dict(kwargs), JSON))
    except EncodeError as error:
        raise EncodeError(f"task {task}: {error}") from error.__cause__
