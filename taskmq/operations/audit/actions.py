"""Audit entries for actions on the broker or the state, and the subjects that entries are filed under."""

from typing import Any

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.errors import JobNotFound
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["audit_subject", "note_action"]


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


async def audit_subject(jobs: TenantJobs, name: str, *, kind: str = "") -> str:
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
