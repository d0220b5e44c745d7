"""The message of one occurrence, out of that of the schedule's call. Pure."""

from typing import Final

from msgspec.structs import replace

from taskmq.model.envelope import Envelope
from taskmq.run.context import SCHEDULE_DUE, SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.record import OccurrenceClaim
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import Timed

__all__ = ["LOW", "due_instant", "occurrence_envelope", "priority_of"]

LOW: Final = 0
"""The priority of what is made up for: behind what is due now."""

_BEHIND: Final = ("catchup", "backfill")


def due_instant(schedule: Timed, claim: OccurrenceClaim) -> int:
    """When it was to be sent, ms: its schedule's jitter after its nominal instant."""
    return claim.instant + jitter_of(schedule.name, schedule.policy.jitter)


def priority_of(claim: OccurrenceClaim, own: int | None) -> int | None:
    """The priority of an occurrence whose call has one of its `own`."""
    return LOW if claim.kind in _BEHIND else own


def occurrence_envelope(
    call: Envelope, schedule: Timed, claim: OccurrenceClaim, *, job_id: str, key: str | None, now: int
) -> Envelope:
    """The envelope of one occurrence.

    Args:
        call: of a call that was made at its `enqueued`; what it says of times moves with it.
        key: its idempotency key, where the call has none.
        now: ms since the epoch.
    """
    moved = now - (call.enqueued or 0)
    meta = {**(call.meta or {}), SCHEDULE_NAME: schedule.name, SCHEDULED_FOR: str(claim.instant)}
    due = now if claim.kind == "backfill" else due_instant(schedule, claim)
    if due != claim.instant:
        meta[SCHEDULE_DUE] = str(due)
    return replace(
        call,
        id=job_id,
        key=call.key or key,
        enqueued=now,
        eta=None if call.eta is None else call.eta + moved,
        expires=None if call.expires is None else call.expires + moved,
        priority=priority_of(claim, call.priority),
        meta=meta,
    )
