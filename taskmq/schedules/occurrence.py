"""Messages of occurrences, derived from the message of the schedule's call. Pure."""

from typing import Final

from msgspec.structs import replace

from taskmq.model.envelope import Envelope
from taskmq.run.facts import SCHEDULE_DUE, SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.schedules.record import OccurrenceClaim
from taskmq.schedules.triggers import jitter_of
from taskmq.schedules.turn import Timed

LOW: Final = 0
"""Priority of catch-up occurrences: behind those due now."""

_BEHIND: Final = ("catchup", "backfill")


def due_instant(schedule: Timed, claim: OccurrenceClaim) -> int:
    """Return when the occurrence is to be sent, ms: its nominal instant plus the schedule's jitter."""
    return claim.instant + jitter_of(schedule.name, schedule.policy.jitter)


def priority_of(claim: OccurrenceClaim, own: int | None) -> int | None:
    """Return the priority of an occurrence whose call has priority `own`."""
    return LOW if claim.kind in _BEHIND else own


def occurrence_envelope(
    call: Envelope, schedule: Timed, claim: OccurrenceClaim, *, job_id: str, key: str | None, now: int
) -> Envelope:
    """Build the envelope of one occurrence.

    Args:
        call: envelope of a call created at its `enqueued`; its times are shifted accordingly.
        key: its idempotency key, if the call has none.
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
