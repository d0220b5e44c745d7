"""The record of one claimed key, and the rules that change it. Instants are milliseconds of one clock."""

from enum import Enum
from typing import Final

import msgspec

from taskmq.contracts.stores import Claimed, Done, Granted, Held


class Stage(Enum):
    """Stage of the work of a key."""

    FREE = "free"
    HELD = "held"
    DONE = "done"


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one key.

    Attributes:
        token: the last one granted.
        until: end of the lease; for keys not held, the expiry of the record.
        keep: how long the record is kept after that.
    """

    stage: Stage
    token: int
    until: int
    keep: int
    owner: str = ""
    job_id: str = ""
    content_type: str = ""
    value: bytes = b""

    @property
    def expires(self) -> int:
        """The instant after which the record may be deleted."""
        return self.until + self.keep


FORGOTTEN: Final = 3_600_000
"""Time for which a key is remembered that was renewed after its record was lost."""


def claim(
    kept: ClaimRecord | None, *, job_id: str, owner: str, lease: int, ttl: int, over: int | None, token: int, now: int
) -> tuple[Claimed, ClaimRecord | None]:
    """Return the answer, and the new record if it changes.

    Args:
        token: the next one to grant.
    """
    found = status(kept, now=now)
    if isinstance(found, Done) or (isinstance(found, Held) and found.token != over):
        return found, None
    held = ClaimRecord(stage=Stage.HELD, token=token, until=now + lease, keep=ttl, owner=owner, job_id=job_id)
    return Granted(token), held


def status(kept: ClaimRecord | None, *, now: int) -> Held | Done | None:
    """Return the key's status as other callers see it; None if the key is free."""
    if kept is not None and kept.stage is Stage.DONE:
        return Done(job_id=kept.job_id, content_type=kept.content_type, value=kept.value)
    if kept is not None and kept.stage is Stage.HELD and kept.until > now:
        left = (kept.until - now) / 1000
        return Held(owner=kept.owner, job_id=kept.job_id, token=kept.token, left=left)
    return None


def renew(kept: ClaimRecord | None, *, token: int, lease: int, now: int) -> ClaimRecord | None:
    """Return the renewed record; None if the claim was lost."""
    if kept is None:
        return ClaimRecord(stage=Stage.HELD, token=token, until=now + lease, keep=FORGOTTEN)
    if kept.stage is not Stage.HELD or kept.token != token:
        return None
    return msgspec.structs.replace(kept, until=now + lease)


def complete(
    kept: ClaimRecord | None, *, token: int, job_id: str, content_type: str, value: bytes, ttl: int, now: int
) -> tuple[bool, ClaimRecord | None]:
    """Return whether the completion counts, and the new record if it changes."""
    if kept is not None and (kept.token != token or kept.stage is Stage.FREE):
        return False, None
    if kept is not None and kept.stage is Stage.DONE:
        return True, None
    done = ClaimRecord(
        stage=Stage.DONE, token=token, until=now + ttl, keep=0, job_id=job_id, content_type=content_type, value=value
    )
    return True, done


def release(kept: ClaimRecord | None, *, token: int, now: int) -> tuple[bool, ClaimRecord | None]:
    """Return whether no other holder has the key, and the new record if it changes."""
    if kept is None or kept.token != token or kept.stage is not Stage.HELD:
        return kept is None or kept.token == token, None
    return True, ClaimRecord(stage=Stage.FREE, token=token, until=now, keep=kept.keep)
