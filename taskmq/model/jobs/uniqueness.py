"""Whether the unique key of a job that is submitted is free. Pure.

Nothing frees a key when its job starts or ends: whether it does not hold its key any more follows from what the job
is, at the moment when a job wants the key. So no report and no end costs anything for it.
"""

from typing import Final, Literal

import msgspec

from taskmq.model.states import CHANGEABLE, TERMINAL, JobState

__all__ = ["KeyHolder", "UniqueKey", "availability"]


class UniqueKey(msgspec.Struct, frozen=True, kw_only=True):
    """That a job is to be the only one of its key.

    Attributes:
        name: the key, with its task and tenant.
        until: it is taken while its job waits, until that has ended, or until `ttl` is over, whatever the job does.
        replaces: the later job counts: it takes the place of one that has not started.
        ttl: ms after which the key is free in any case.
    """

    name: str
    until: Literal["waiting", "running", "over"] = "waiting"
    replaces: bool = False
    ttl: int


class KeyHolder(msgspec.Struct, frozen=True):
    """The job that was given a key last, as it is now.

    Attributes:
        has_run: it was begun, this time or before.
        until: ms since the epoch; the key is free then in any case.
    """

    id: str
    state: JobState
    version: int
    has_run: bool
    until: int


_MAY_BE_REPLACED: Final = CHANGEABLE | {JobState.DISPATCHED}


def availability(key: UniqueKey, holder: KeyHolder | None, *, now: int) -> Literal["free", "taken", "replaceable"]:
    """Whether a further job may have the key.

    Args:
        holder: None: no job has had it, or that job is not known any more.
        now: ms since the epoch.
    """
    if holder is None or now >= holder.until:
        return "free"
    if key.until == "over":
        return "taken"
    if holder.state in TERMINAL or (key.until == "waiting" and holder.has_run):
        return "free"
    return "replaceable" if key.replaces and holder.state in _MAY_BE_REPLACED else "taken"
