"""`app.definitions`: named, versioned templates of jobs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import DefinitionPage
from taskmq.errors import (
    DefinitionConflict,
    DefinitionNotFound,
    EncodeError,
    InvalidOption,
    TooLarge,
    UnknownTask,
)
from taskmq.model.envelope import JSON, check_task_name
from taskmq.model.jobs.call_schemas import bind_arguments, check_names, registration_of
from taskmq.model.jobs.definitions import Definition, DefinitionContent, encode_content
from taskmq.model.jobs.registrations import TaskFacts
from taskmq.model.units import did_you_mean
from taskmq.model.values.canonical_form import canonical_order
from taskmq.model.values.return_type import PLAIN
from taskmq.stored_jobs.named_calls import NamedCalls, bounds_of
from taskmq.stored_jobs.task_catalogue import RegisteredSignature, catalogue_of
from taskmq.tasks.job_options import DefinitionOptions, JobPlan, plan_job
from taskmq.tasks.task import Task

_LONGEST: Final = 262_144
_TENANT_LIMIT: Final = 255


class Definitions:
    """Templates of jobs: a task with arguments and options under a name. `app.jobs.submit` accepts the name.

    Putting different content creates a new version; jobs record the version they were made from. Definitions follow
    the naming rules of tasks, and may not have the name of a task. Methods that start with `a` are for coroutines.
    Every method may raise `StoreUnavailable`, and `UnsupportedFeature` if no store of the app keeps definitions.
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
        """Create a version with this content, unless the last one is equal. Returns the last version.

        Args:
            task: a task, or the name of a task of the app or of a registered one.
            args, kwargs: default arguments. Positional arguments of a submission replace all of `args`; keyword
                arguments replace those of the same names. The defaults may be incomplete.
            options: default options of its jobs. None and empty values count as not given.
            version: version that the present definition must have; 0: there must be none; None: any.
            by: name of the actor.

        Raises:
            UnknownTask: neither the app nor the store knows the task.
            InvalidArguments, EncodeError, InvalidOption, TooLarge: nothing was stored. The limit is 256 KiB.
            DefinitionConflict: the present definition has another version.
        """
        definitions = catalogue_of(self._sessions).definitions
        _check_name(name)
        _check_tenant(tenant)
        found = await self._find_task(name, task)
        values, named = _to_plain(name, args, kwargs or {})
        _check_arguments(found, values, named)
        plain = _to_plain_options(name, found, options)
        content = DefinitionContent(task=_name_of(found), args=values, kwargs=named, **plain)
        if (size := len(encode_content(content))) > _LONGEST:
            raise TooLarge(size, _LONGEST, f"definition {name}")
        put = await definitions.put(tenant, name, content, version=version, by=by)
        if put is None:
            raise await self._conflict(tenant, name, version)
        return put.definition

    put = blocking(aput)

    async def aget(self, name: str, *, tenant: str = "", version: int | None = None) -> Definition:
        """Return the last version, or the given one. Versions of a deleted definition are found by number.

        Raises:
            DefinitionNotFound: there is no such definition or version.
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
        """Return up to `limit` of the tenant's definitions whose names start with `prefix`, sorted, after `after`."""
        _check_limit(limit)
        return await catalogue_of(self._sessions).definitions.page(tenant, prefix=prefix, after=after, limit=limit)

    list = blocking(alist)

    async def aversions(
        self, name: str, *, tenant: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[Definition]:
        """Return up to `limit` versions below `before`, newest first, including those of a deleted definition.

        Raises:
            DefinitionNotFound: there was never a definition of that name.
        """
        _check_limit(limit)
        definitions = catalogue_of(self._sessions).definitions
        found = await definitions.versions(tenant, name, before=before, limit=limit)
        if not found and before is None:
            raise DefinitionNotFound(f"there is no definition {name[:200]!r}")
        return found

    versions = blocking(aversions)

    async def adelete(self, name: str, *, tenant: str = "", version: int | None = None) -> None:
        """Delete a definition. Jobs made from it continue, and its versions are kept.

        Args:
            version: version that it must have; None: any.

        Raises:
            DefinitionNotFound: there is no definition of that name.
            DefinitionConflict: it has another version.
        """
        if not await catalogue_of(self._sessions).definitions.delete(tenant, name, version=version):
            raise await self._conflict(tenant, name, version)

    delete = blocking(adelete)

    async def _find_task(self, name: str, task: Task[..., Any] | str) -> Task[..., Any] | RegisteredSignature:
        if await self._names.find_task(name) is not None:
            raise InvalidOption(f"definition {name!r}: a task already has this name")
        found = await self._names.find_task(task) if isinstance(task, str) else task
        if found is None:
            raise UnknownTask(f"definition {name!r}: neither the app nor a worker has a task {str(task)[:200]!r}")
        return found

    async def _conflict(self, tenant: str, name: str, version: int | None) -> Exception:
        present = await catalogue_of(self._sessions).definitions.get(tenant, name)
        if present is None:
            return DefinitionNotFound(f"there is no definition {name[:200]!r}")
        return DefinitionConflict(
            f"definition {name!r} has version {present.version}, not {version}: read it again",
            version=present.version,
        )


def _check_name(name: str) -> None:
    try:
        check_task_name(name)
    except InvalidOption:
        raise InvalidOption(
            f"definition {name[:200]!r}: give 1 to 128 characters of A-Z a-z 0-9 _ . : -, as for tasks"
        ) from None


def _check_tenant(tenant: str) -> None:
    try:
        size = len(tenant.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"tenant: cannot be encoded as UTF-8 ({error.reason})") from None
    if "\0" in tenant or size > _TENANT_LIMIT:
        raise InvalidOption(f"tenant: give at most {_TENANT_LIMIT} bytes without NUL")


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidOption(f"limit={limit}: give at least 1")


def _to_plain_options(
    name: str, task: Task[..., Any] | RegisteredSignature, options: DefinitionOptions
) -> dict[str, Any]:
    """Return the options as fields of `DefinitionContent`.

    Raises:
        InvalidOption: an option is unknown or invalid, or the task does not allow it.
    """
    if unknown := sorted(options.keys() - DefinitionOptions.__annotations__.keys()):
        hint = did_you_mean(unknown[0], DefinitionOptions.__annotations__)
        raise InvalidOption(f"definition {name}: unknown option {unknown[0]!r}; {hint}")
    given: dict[str, Any] = {option: value for option, value in options.items() if value not in (None, "", {})}
    plan = plan_job(JobPlan(queue="", **bounds_of(task)), given, task=_name_of(task))
    if plan.expires_at is not None:
        raise InvalidOption(f"definition {name}: expires: give a duration after the submission, not an instant")
    given["expires"] = plan.expires
    if plan.run is not None and plan.run.timeout is not None:
        given["timeout"] = plan.run.timeout / 1000
    if plan.run is not None and "retry" in given:
        spans = {each: getattr(plan.run, each) / 1000 for each in ("base", "cap") if given["retry"].get(each)}
        given["retry"] = {**given["retry"], **spans}
    if plan.detail is not None and plan.detail.needs is not None and "resources" in given:
        given["resources"] = plan.detail.needs.resources
    return given


def _name_of(found: Task[..., Any] | RegisteredSignature) -> str:
    return found.name if isinstance(found, Task) else found.registration.task


def _to_plain(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert the arguments to plain JSON values."""
    try:
        return (
            canonical_order(list(args), PLAIN.decode(PLAIN.encode(list(args), JSON), JSON)),
            canonical_order(dict(kwargs), PLAIN.decode(PLAIN.encode(dict(kwargs), JSON), JSON)),
        )
    except EncodeError as error:
        raise EncodeError(f"definition {name}: {error}") from error.__cause__


def _check_arguments(
    found: Task[..., Any] | RegisteredSignature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Check that the task accepts the given arguments; submissions may add missing ones."""
    if not isinstance(found, Task):
        found.check_part(bind_arguments(found.registration, args, kwargs))
    elif found.signature.accepts(len(args), kwargs):
        raw_args, raw_kwargs = PLAIN.encode(list(args), JSON), PLAIN.encode(dict(kwargs), JSON)
        found.signature.decode(msgspec.Raw(raw_args), msgspec.Raw(raw_kwargs), JSON)
    else:
        registration = registration_of(
            found.name, found.queue, found.signature.parameters, doc=None, facts=TaskFacts()
        )
        check_names(registration, bind_arguments(registration, args, kwargs))
