"""Audit entries of what is done at the broker or in the state, and the names by which entries are found."""

from typing import Any

from taskmq.app import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.errors import JobNotFound
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["audit_subject", "note_action"]


async def note_action(
    app: TaskMQ, by: Actor, action: str, *, subject: str, tenant: str = "", after: dict[str, Any] | None = None
) -> None:
    """Write what the actor is about to do into the audit, before it is done; an app without a store has none.

    Args:
        action: a noun and a verb, such as `queue.purge`.
        subject: the name of what it is done to.
        tenant: whose it is.
        after: facts about it; no arguments of tasks.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    if app.sessions.current().store is None:
        return
    entry = by.entry(action, kind=action.partition(".")[0], subject=subject, tenant=tenant, after=after)
    await app.sessions.store().identity.audit.add([entry])


async def audit_subject(jobs: TenantJobs, name: str, *, kind: str = "") -> str:
    """Find the subject of audit entries by a name: entries about a job have the store's id.

    Args:
        jobs: those that the caller may see.
        name: a job's, or that of something else, which is its own subject.
        kind: of the things that are looked for; "": any.
    """
    if not name or kind not in ("", "job"):
        return name
    try:
        return (await jobs.get(name)).id
    except JobNotFound:
        return name
