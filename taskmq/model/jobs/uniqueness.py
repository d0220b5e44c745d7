"""Availability of the unique key of a submitted job. Pure.

Starts and ends of jobs release no key. Whether a job still holds its key follows from its row when another job wants
the key. So reports and ends have no cost for it.
"""

from typing import Final, Literal

import msgspec

from taskmq.model.states import CHANGEABLE, TERMINAL, JobState


class UniqueKey(msgspec.Struct, frozen=True, kw_only=True):
    """Uniqueness rule of one job.

    Attributes:
        name: the key, with its task and tenant.
        until: the key is taken while its job waits, until it ends, or until `ttl` is over whatever the job does.
        replaces: whether a later job replaces one that has not started.
        ttl: ms after which the key is free in any case.
    """

    name: str
    until: Literal["waiting", "running", "over"] = "waiting"
    replaces: bool = False
    ttl: int


class KeyHolder(msgspec.Struct, frozen=True):
    """The job that acquired a key last, as it is now.

    Attributes:
        has_run: whether it started, now or before.
        until: ms since the epoch; the key is free then in any case.
    """

    id: str
    state: JobState
    version: int
    has_run: bool
    until: int


_MAY_BE_REPLACED: Final = CHANGEABLE | {JobState.DISPATCHED}


def availability(key: UniqueKey, holder: KeyHolder | None, *, now: int) -> Literal["free", "taken", "replaceable"]:
    """Return whether another job may have the key.

    Args:
        holder: None: no job had it, or that job no longer exists.
        now: ms since the epoch.
    """
    if holder is None or now >= holder.until:
        return "free"
    if key.until == "over":
        return "taken"
    if holder.state in TERMINAL or (key.until == "waiting" and holder.has_run):
        return "free"
    return "replaceable" if key.replaces and holder.state in _MAY_BE_REPLACED else "taken"
