"""From a name to a job: of a task whose code is here, of one that is registered, or of a definition.

    name -> the app's own task -> its signature and options
         -> a registered task  -> its schema and queue
         -> a definition of the tenant -> one of these two, with its arguments and options

In this order, so that a name that is given to a task later goes on to mean what tasks mean.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from taskmq.client.job_service import JobService
from taskmq.contracts.jobs import JobDetail
from taskmq.errors import EncodeError, InvalidArguments, InvalidOption, UnknownTask
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.codec import PLAIN, ReturnType, Signature
from taskmq.model.envelope import JSON
from taskmq.model.jobs.definitions import Definition, DefinitionContent, merged
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.units import did_you_mean
from taskmq.model.values.canonical_form import canonical_json
from taskmq.options.task_options import CallPlan, plan_call
from taskmq.submission.task_catalogue import RegisteredSignature, TaskCatalogue, catalogue_of
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.job_options import NO_JOB_PLAN, JobPlan, detail_of
from taskmq.tasks.registry import TaskRegistry
from taskmq.tasks.task import Arguments, Task

__all__ = ["NamedCall", "NamedCalls"]


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
        self._definition = definition

    @property
    def task(self) -> str:
        """The name of the task that its jobs run."""
        return self._known.name if isinstance(self._known, Task) else self._known.registration.task

    @property
    def queue(self) -> str:
        """Where its jobs wait, unless a submission says otherwise."""
        if self._definition is not None and self._definition.content.queue:
            return self._definition.content.queue
        return self._known.queue if isinstance(self._known, Task) else self._known.registration.queue

    def open_names(self, count: int) -> frozenset[str]:
        """The parameters that can be given by name beside so many positional arguments; none of a definition's."""
        if self._definition is not None:
            return frozenset()
        if isinstance(self._known, Task):
            return self._known.open_names(count)
        return self._known.names - set(self._known.registration.positional[:count])

    def handle(self, job_id: str) -> Job[Any]:
        """The handle of a job that was made by it."""
        if isinstance(self._known, Task):
            return self._known.handle(job_id)
        return Job(job_id, task=self._known.registration.task, jobs=self._jobs, returns=ReturnType(Any))

    def submissions(
        self, calls: Iterable[Arguments], options: Mapping[str, Any], *, job: JobPlan = NO_JOB_PLAN
    ) -> Iterator[Sending]:
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
                yield self.submission((), call, options, job=job)
            else:
                yield self.submission(call, {}, options, job=job)

    def submission(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        job: JobPlan = NO_JOB_PLAN,
        upstream: tuple[JobDependency, ...] = (),
    ) -> Sending:
        """A call with these over the definition's own; the arguments may be encoded values.

        Args:
            upstream: the jobs that it waits for, where they are found; else those of `job` are left to be found.

        Raises:
            InvalidArguments, EncodeError, InvalidOption: they do not fit.
        """
        content = None if self._definition is None else self._definition.content
        asked_for = None
        own = job.detail or JobDetail()
        if content is not None:
            said = (own.description, own.owner, own.labels, *((each.id, each.condition) for each in upstream))
            more: list[Any] = [] if own.needs is None else [msgspec.to_builtins(own.needs)]
            if own.preemptible is not None:
                more.append(own.preemptible)
            asked_for = _asked_for(self._name, args, kwargs, options, said, *more)
            given, named = merged(content, tuple(args), kwargs)
            sending = self._sending(given, named, {**_options_of(content), **options})
        else:
            sending = self._sending(args, kwargs, options)
        sending.submission = replace(
            sending.submission or Submission(),
            detail=self._detail(content, own, upstream),
            held=job.held,
            depends_on=() if upstream else job.depends_on,
            connection=job.connection,
            asked_for=asked_for,
        )
        return sending

    def _sending(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Sending:
        if isinstance(self._known, Task):
            return self._of_code(self._known, args, kwargs, options)
        return self._of_schema(self._known, args, kwargs, options)

    def _of_code(
        self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Sending:
        raw_args, raw_kwargs = _encoded(task.name, args, kwargs)
        positional, named = task.signature.decode(raw_args, raw_kwargs, JSON)
        return task.with_options(options).submission(*positional, **named)

    def _of_schema(
        self,
        signature: RegisteredSignature,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Sending:
        registration, facts = signature.registration, signature.registration.facts
        if facts.needs_code:
            raise InvalidOption(
                f"task {registration.task} has {', '.join(f'{each}=' for each in facts.needs_code)}, whose keys only "
                "its own code makes: submit it from an app that has it"
            )
        raw_args, raw_kwargs = signature.encode(args, kwargs)
        own = CallPlan(
            queue=registration.queue,
            priority=facts.priority,
            delay=facts.delay,
            expires=facts.expires,
            tenant=facts.tenant,
            meta=dict(facts.meta) or None,
        )
        plan = plan_call(own, options, task=registration.task)
        now = self._jobs.sessions.clock.now_ms()
        envelope = envelope_of(
            plan, registration.task, raw_args, raw_kwargs, plan.idempotency_key, plan.order_key, now
        )
        asked = (plan.delay, plan.eta, plan.expires, plan.expires_at)
        compared = None
        if plan.job_id is not None:
            compared = msgspec.Raw(canonical_json(list(args))), msgspec.Raw(canonical_json(dict(kwargs)))
        submission = Submission(job_id=plan.job_id, asked=asked, compared=compared)
        return Sending(envelope, plan.queue, JSON, submission=submission)

    def _detail(
        self, content: DefinitionContent | None, own: JobDetail, upstream: tuple[JobDependency, ...]
    ) -> JobDetail | None:
        if content is None or self._definition is None:
            found = replace(own, depends_on=upstream)
            return None if found == JobDetail() else found
        detail = detail_of(
            description=own.description or content.description,
            owner=own.owner or content.owner,
            labels={**content.labels, **own.labels},
            needs=own.needs,
            preemptible=own.preemptible,
            depends_on=upstream,
        )
        return replace(
            detail or JobDetail(), definition=self._definition.name, definition_version=self._definition.version
        )


class NamedCalls:
    """Finds what names stand for.

    Args:
        tasks: of the app.
    """

    def __init__(self, jobs: JobService, tasks: TaskRegistry, catalogue: TaskCatalogue) -> None:
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
        definition = await catalogue_of(self._jobs.sessions).definitions.get(tenant, name, version=version)
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

    async def signature(self, name: str) -> Signature | RegisteredSignature | None:
        """How a task is called; None where neither the app nor the store knows it."""
        found = await self.find_task(name)
        return found.signature if isinstance(found, Task) else found

    async def find_task(self, name: str) -> Task[..., Any] | RegisteredSignature | None:
        """The app's task, else what is registered; None where neither has it."""
        return self._tasks.get(name) or await self._catalogue.signature(name)


def _options_of(content: DefinitionContent) -> dict[str, Any]:
    found = {
        "queue": content.queue or None,
        "priority": content.priority,
        "expires": None if content.expires is None else timedelta(milliseconds=content.expires),
    }
    return {name: value for name, value in found.items() if value is not None}


def _asked_for(name: str, *facts: object) -> bytes:
    """What tells a submission from others: as it was asked for, whichever version the definition has by then."""
    try:
        plain = msgspec.json.decode(canonical_json([name, *facts]))
    except EncodeError as error:
        raise EncodeError(f"definition {name}: {error}") from error.__cause__
    return msgspec.json.encode(plain, order="deterministic")


def _encoded(task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[msgspec.Raw, msgspec.Raw]:
    try:
        return msgspec.Raw(PLAIN.encode(list(args), JSON)), msgspec.Raw(PLAIN.encode(dict(kwargs), JSON))
    except EncodeError as error:
        raise EncodeError(f"task {task}: {error}") from error.__cause__
