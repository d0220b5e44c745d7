"""Audit entries for actions on the broker or the state, and the subjects that entries are filed under."""

import getpass
import logging
import os
import socket
from typing import TYPE_CHECKING, Any, Protocol

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.errors import JobNotFound, StoreUnavailable

if TYPE_CHECKING:
    from taskmq.operations.tenant_jobs import TenantJobs

_log = logging.getLogger("taskmq.audit")


class RecordAction(Protocol):
    """A function that writes the audit entry of an action before the action."""

    async def __call__(
        self, app: TaskMQ, action: str, /, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        """Write the entry; see `note_action`."""
        ...


def system_user() -> str:
    """Return the name of the operating system's user, or its number if it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def record_as(by: str = "") -> RecordAction:
    """Return a function that records actions of Python code, even if it runs without a server or a command.

    If the store is unavailable, the function logs a warning, so that an operator can still pause or purge a queue.

    Args:
        by: the actor's name; "" means the operating system's user.
    """

    async def record(
        app: TaskMQ, action: str, /, *, subject: str, after: dict[str, Any] | None = None, note: str = ""
    ) -> None:
        actor = Actor(user=by or system_user(), via="python", address=socket.gethostname(), note=note)
        try:
            await note_action(app, actor, action, subject=subject, after=after)
        except StoreUnavailable as error:
            _log.warning("%s of %r is not recorded in the audit: %s", action, subject, error)

    return record


async def note_action(
    app: TaskMQ, by: Actor, action: str, *, subject: str, tenant: str = "", after: dict[str, Any] | None = None
) -> None:
    """Record in the audit log what the actor is about to do. Does nothing if the app has no store.

    Args:
        action: a noun and a verb, such as `queue.purge`.
        subject: name of the object that the action changes.
        tenant: tenant that owns the object.
        after: details of the action; never task arguments.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    if app.sessions.current().store is None:
        return
    entry = by.entry(action, kind=action.partition(".")[0], subject=subject, tenant=tenant, after=after)
    await app.sessions.store().identity.audit.add([entry])


async def audit_subject(jobs: "TenantJobs", name: str, *, kind: str = "") -> str:
    """Return the subject under which the audit log files a name. Entries about a job use the store's id.

    Args:
        jobs: jobs that the caller may see.
        name: a job's name. Any other name is its own subject.
        kind: kind of the objects to find; "" means any.
    """
    if not name or kind not in ("", "job"):
        return name
    try:
        return (await jobs.get(name)).id
    except JobNotFound:
        return name
