"""The person who runs a command, and the audit entry of what it changes."""

import dataclasses
import functools
import inspect
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, cast

from cyclopts import Parameter

from taskmq.cli.globals import current_globals, refuse_local_options, run_with_app, set_globals
from taskmq.cli.output import note
from taskmq.contracts.identity import Actor
from taskmq.errors import TaskMQError
from taskmq.model.keys import tenant_key

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_By = Annotated[
    str | None, Parameter(name="--by", help="Name for history and audit. Default: the system user.", negative="")
]

_Tenant = Annotated[str | None, Parameter(name="--tenant", help="The job's tenant.", negative="")]


def name_caller(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option `--by` to a command that changes something; a server takes the name from the token."""

    def keep(by: str | None, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if current_globals().server is not None:
            refuse_local_options(by=by)
        set_globals(dataclasses.replace(current_globals(), by=by))
        return args

    return _with_option(command, "by_whom", _By, keep)


def of_tenant(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option `--tenant` to a command about jobs, so that it accepts the ids that the tenant chose."""

    def keep(tenant: str | None, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if tenant is None or current_globals().server is not None:
            set_globals(dataclasses.replace(current_globals(), tenant=tenant))
            return args
        return tuple(tenant_key(tenant, job) for job in args)

    return _with_option(command, "tenant_of_job", _Tenant, keep)


def _with_option(
    command: Callable[P, R],
    name: str,
    annotation: Any,
    keep: Callable[[str | None, tuple[Any, ...]], tuple[Any, ...]],
) -> Callable[P, R]:
    """Add one option to a command; `keep` receives its value and the command's arguments before the command runs."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> R:
        return command(*keep(kwargs.pop(name, None), args), **kwargs)

    known = inspect.signature(command)
    option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    own: Any = run
    own.__signature__ = known.replace(parameters=[*known.parameters.values(), option])
    own.__annotations__ = {**command.__annotations__, name: annotation}
    return cast("Callable[P, R]", run)


def me(note: str = "") -> Actor:
    """Return the person who runs the command, for the audit: `--by` or the system's user, and the host.

    Args:
        note: the reason, for people.
    """
    from taskmq.operations.audit.actions import system_user

    name = current_globals().by
    return Actor(user=system_user() if name is None else name, address=socket.gethostname(), note=note)


def change_with_app(
    use: "Callable[[TaskMQ], Coroutine[Any, Any, T]]",
    action: str,
    subjects: Sequence[str],
    *,
    tenant: str = "",
    after: dict[str, Any] | None = None,
    why: str = "",
) -> T:
    """Write audit entries, then call `use` with the app as `run_with_app` does.

    Args:
        action: a noun and a verb, such as `queue.pause`.
        subjects: names of the things changed; each gets an entry.
        tenant: the owner of the subjects.
        after: facts about the change; no task arguments.
        why: the reason, for people.
    """

    async def run(target: "TaskMQ") -> T:
        for subject in subjects:
            await note_change(target, action, subject, tenant=tenant, after=after, why=why)
        return await use(target)

    return run_with_app(run)


async def note_change(
    target: "TaskMQ",
    action: str,
    subject: str,
    *,
    tenant: str = "",
    after: dict[str, Any] | None = None,
    why: str = "",
) -> None:
    """Record a change in the audit before it is made, if the app has a store.

    An operator can pause a queue while the store is unavailable: the command continues without an entry and warns.
    """
    from taskmq.operations.audit.actions import note_action

    try:
        await note_action(target, me(why), action, subject=subject, tenant=tenant, after=after)
    except TaskMQError as error:
        note(f"not recorded in the audit: {error}")
