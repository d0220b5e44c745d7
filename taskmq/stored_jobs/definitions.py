"""`app.definitions`: named, versioned templates that jobs are made from."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import DefinitionPage, JobDetail
from taskmq.errors import (
    DefinitionConflict,
    DefinitionNotFound,
    EncodeError,
    InvalidOption,
    TooLarge,
    UnknownTask,
)
from taskmq.model.codec import PLAIN
from taskmq.model.envelope import JSON, check_task_name
from taskmq.model.jobs.call_schemas import bind_arguments, check_names, registration_of
from taskmq.model.jobs.definitions import Definition, DefinitionContent, encode_content
from taskmq.model.jobs.registrations import TaskFacts
from taskmq.model.units import Duration, did_you_mean
from taskmq.model.values.canonical_form import canonical_order
from taskmq.stored_jobs.named_calls import NamedCalls
from taskmq.stored_jobs.task_catalogue import RegisteredSignature, catalogue_of
from taskmq.tasks.job_options import JobPlan, plan_job
from taskmq.tasks.task import Task

__all__ = ["DefinitionOptions", "Definitions"]

_LONGEST: Final = 262_144
_TENANT_LIMIT: Final = 255


class DefinitionOptions(TypedDict, total=False):
    """Options of `app.jobs.submit` that a definition can have for its jobs."""

    queue: str
    priority: int | None
    expires: Duration | None
    labels: Mapping[str, str] | None
    description: str
    owner: str


class Definitions:
    """Templates: a task with arguments and options under a name, which `app.jobs.submit` takes in place of a task.

    A definition that is put with other content gets another version; jobs say which they were made from. Its name is
    written as that of a task, and no task may have it. What begins with `a` is for coroutines. Each method may raise
    `StoreUnavailable`, and `UnsupportedFeature` where the app has no store, or one that keeps no definitions.
    """

    def __init__(self, sessions: Sessions, names: NamedCalls) -> None:
        self._sessions = sessions
        self._names = names

    async def aput(
        self,
        name: str,
        task: Task[..., Any] | str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        tenant: str = "",
        version: int | None = None,
        by: str = "",
        **options: Unpack[DefinitionOptions],
    ) -> Definition:
        """Make a version with this content, unless the last one says the same; the last version afterwards.

        Args:
            task: a task, or the name of one of the app's or a registered one.
            args, kwargs: of its jobs. A submission that gives positional arguments replaces all of `args`, and one
                that gives an argument by name that one of `kwargs`; so they may lack what every submission gives.
            options: of its jobs, where a submission says nothing else; one that is None, or empty, is as not given.
            version: that it must have; 0: there must be none; None: whichever it has.
            by: who does so.

        Raises:
            UnknownTask: neither the app nor the store knows the task.
            InvalidArguments, EncodeError, InvalidOption, TooLarge: nothing was kept. A definition has up to 256 KiB.
            DefinitionConflict: it has another version.
        """
        definitions = catalogue_of(self._sessions).definitions
        _check_name(name)
        _check_tenant(tenant)
        known = await self._known(name, task)
        values, named = _plain(name, args, kwargs or {})
        _check_arguments(known, values, named)
        plan = _plan(name, _name_of(known), options)
        detail = plan.detail or JobDetail()
        content = DefinitionContent(
            task=_name_of(known),
            args=values,
            kwargs=named,
            queue=plan.queue,
            priority=plan.priority,
            expires=plan.expires,
            labels=detail.labels,
            description=detail.description,
            owner=detail.owner,
        )
        if (size := len(encode_content(content))) > _LONGEST:
            raise TooLarge(size, _LONGEST, f"definition {name}")
        put = await definitions.put(tenant, name, content, version=version, by=by)
        if put is None:
            raise await self._conflict(tenant, name, version)
        return put.definition

    put = blocking(aput)

    async def aget(self, name: str, *, tenant: str = "", version: int | None = None) -> Definition:
        """The last version, or this one; versions of a deleted definition are found by number.

        Raises:
            DefinitionNotFound: there is none.
        """
        found = await catalogue_of(self._sessions).definitions.get(tenant, name, version=version)
        if found is None:
            which = "" if version is None else f" with version {version}"
            raise DefinitionNotFound(f"there is no definition {name[:200]!r}{which}")
        return found

    get = blocking(aget)

    async def alist(
        self, prefix: str = "", *, tenant: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        """Up to `limit` of the tenant's definitions whose names begin so, by name, from behind `after`."""
        _check_limit(limit)
        return await catalogue_of(self._sessions).definitions.page(tenant, prefix=prefix, after=after, limit=limit)

    list = blocking(alist)

    async def aversions(
        self, name: str, *, tenant: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[Definition]:
        """Up to `limit` of its versions below `before`, the last one first; those of a deleted one, too.

        Raises:
            DefinitionNotFound: there was never one of that name.
        """
        _check_limit(limit)
        definitions = catalogue_of(self._sessions).definitions
        found = await definitions.versions(tenant, name, before=before, limit=limit)
        if not found and before is None:
            raise DefinitionNotFound(f"there is no definition {name[:200]!r}")
        return found

    versions = blocking(aversions)

    async def adelete(self, name: str, *, tenant: str = "", version: int | None = None) -> None:
        """Make no more jobs from it. Jobs that were made from it go on; its versions are kept.

        Args:
            version: that it must have; None: whichever it has.

        Raises:
            DefinitionNotFound: there is none.
            DefinitionConflict: it has another version.
        """
        if not await catalogue_of(self._sessions).definitions.delete(tenant, name, version=version):
            raise await self._conflict(tenant, name, version)

    delete = blocking(adelete)

    async def _known(self, name: str, task: Task[..., Any] | str) -> Task[..., Any] | RegisteredSignature:
        if await self._names.find_task(name) is not None:
            raise InvalidOption(f"definition {name!r}: a task is called so, and submissions by that name are its")
        known = await self._names.find_task(task) if isinstance(task, str) else task
        if known is None:
            raise UnknownTask(f"definition {name!r}: neither the app nor a worker has a task {str(task)[:200]!r}")
        return known

    async def _conflict(self, tenant: str, name: str, version: int | None) -> Exception:
        present = await catalogue_of(self._sessions).definitions.get(tenant, name)
        if present is None:
            return DefinitionNotFound(f"there is no definition {name[:200]!r}")
        return DefinitionConflict(
            f"definition {name!r} has version {present.version} and not {version}: look at it again",
            version=present.version,
        )


def _check_name(name: str) -> None:
    try:
        check_task_name(name)
    except InvalidOption:
        raise InvalidOption(
            f"definition {name[:200]!r}: 1 to 128 characters out of A-Z a-z 0-9 _ . : -, as the name of a task"
        ) from None


def _check_tenant(tenant: str) -> None:
    try:
        size = len(tenant.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"tenant: a character of it has no form in UTF-8 ({error.reason})") from None
    if "\0" in tenant or size > _TENANT_LIMIT:
        raise InvalidOption(f"tenant: at most {_TENANT_LIMIT} bytes, and no NUL")


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidOption(f"limit={limit}: at least 1")


def _plan(name: str, task: str, options: DefinitionOptions) -> JobPlan:
    if unknown := sorted(options.keys() - DefinitionOptions.__annotations__.keys()):
        hint = did_you_mean(unknown[0], DefinitionOptions.__annotations__)
        raise InvalidOption(f"definition {name}: unknown option {unknown[0]!r}; {hint}")
    given = {option: value for option, value in options.items() if value not in (None, "")}
    plan = plan_job(JobPlan(queue=""), given, task=task)
    if plan.expires_at is not None:
        raise InvalidOption(f"definition {name}: expires: how long after its submission, and this is an instant")
    return plan


def _name_of(known: Task[..., Any] | RegisteredSignature) -> str:
    return known.name if isinstance(known, Task) else known.registration.task


def _plain(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as plain JSON values."""
    try:
        return (
            canonical_order(list(args), PLAIN.decode(PLAIN.encode(list(args), JSON), JSON)),
            canonical_order(dict(kwargs), PLAIN.decode(PLAIN.encode(dict(kwargs), JSON), JSON)),
        )
    except EncodeError as error:
        raise EncodeError(f"definition {name}: {error}") from error.__cause__


def _check_arguments(
    known: Task[..., Any] | RegisteredSignature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """See that the task takes what there is; what is lacking, submissions give."""
    if not isinstance(known, Task):
        known.check_part(bind_arguments(known.registration, args, kwargs))
    elif known.signature.accepts(len(args), kwargs):
        raw_args, raw_kwargs = PLAIN.encode(list(args), JSON), PLAIN.encode(dict(kwargs), JSON)
        known.signature.decode(msgspec.Raw(raw_args), msgspec.Raw(raw_kwargs), JSON)
    else:
        registration = registration_of(
            known.name, known.queue, known.signature.parameters, doc=None, facts=TaskFacts()
        )
        check_names(registration, bind_arguments(registration, args, kwargs))
