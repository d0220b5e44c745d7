"""Changes of stored jobs: their new values, and their entries in the audit."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from taskmq.contracts.identity import Actor
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import (
    JobNotFound,
)
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.changes import Action, Decision
from taskmq.model.keys import tenant_key
from taskmq.model.units import to_datetime

By = str | Actor
"""The actor of a change: a name, or an `Actor` whose changes are audited as well."""
JobRef = str | JobRecord
"""A job by its id, or a record from `get`. A record is read again only if it does not lead to a change."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a job. Unset fields keep their values.

    Attributes:
        due: when it should run (ms since the epoch).
        call: its positional and keyword arguments; once encoded, the fields of the envelope that they change.
    """

    due: int | msgspec.UnsetType = msgspec.UNSET
    expires: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    call: Any = msgspec.UNSET

    def describe(self, record: JobRecord) -> str:
        """Describe each changed field with its old and new value; of arguments only that they changed."""
        changed = [
            f"{name} {_format_value(name, getattr(record, name))} -> {_format_value(name, after)}"
            for name in ("due", "expires", "priority", "queue")
            if (after := getattr(self, name)) is not msgspec.UNSET
        ]
        return ", ".join(changed if self.call is msgspec.UNSET else [*changed, "arguments"])


def _format_value(name: str, value: Any) -> str:
    if value is None or name not in ("due", "expires"):
        return str(value)
    return to_datetime(value).isoformat(timespec="seconds")


NOTHING: Final = Change()


def id_of(job: JobRef) -> str:
    """Return the id of the job."""
    return job if isinstance(job, str) else job.id


def of_tenant(job: JobRef, tenant: str | None) -> JobRef:
    """Add the tenant to the id of a job; a record must belong to that tenant.

    Raises:
        JobNotFound: the record belongs to another tenant.
    """
    if isinstance(job, str):
        return tenant_key(tenant, job)
    if tenant in (None, job.tenant):
        return job
    raise JobNotFound(f"tenant {tenant!r} has no job {job.key or job.id!r}")


def build_entry(record: JobRecord, action: str, after: Mapping[str, Any], *, by: By, note: str) -> AuditEntry | None:
    """Build the audit entry of an action on a job; None if the actor is only a name. It never contains arguments."""
    if isinstance(by, str):
        return None
    return msgspec.structs.replace(by, note=note or by.note).entry(
        f"job.{action}",
        kind="job",
        subject=record.id,
        tenant=record.tenant,
        before={"state": str(record.state), "version": record.version},
        after=dict(after),
    )


def user_of(by: By) -> str:
    """Return the name of the actor."""
    return by if isinstance(by, str) else by.user


def is_no_change(decision: Decision, record: JobRecord, action: Action, change: Change) -> bool:
    """Whether the job is already as the action would make it."""
    if decision.is_request:
        return record.cancel_requested is not None
    return decision.state is record.state and not decision.is_due and (action != "change" or change == NOTHING)
