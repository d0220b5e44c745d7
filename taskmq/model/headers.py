"""The headers of messages that are taskmq's own: part of the wire format. Pure."""

from typing import Final

from taskmq.model.topology import MIDDLE_PRIORITY

__all__ = [
    "ATTEMPT",
    "BROKERS_OWN",
    "DIED",
    "ERROR",
    "ERROR_TYPE",
    "ETA",
    "JOB_PRIORITY",
    "LEASE",
    "ORIGIN",
    "OUTAGES",
    "OWN",
    "OWNER",
    "PRIORITY",
    "QUEUE",
    "QUEUE_ABOUT",
    "QUEUE_APP",
    "REASON",
    "REPLAYED",
    "REPUBLISHED",
    "RESERVED",
    "SEQUENCE",
    "STARTED",
    "STARTS",
    "TENANT",
    "TRACEBACK",
    "UNKNOWN",
    "WORKER",
    "Labels",
    "labels_of",
]

OWN: Final = "x-taskmq-"
"""With this each of them begins."""

BROKERS_OWN: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")
"""With these begin those that brokers write."""

RESERVED: Final = ("x-death", "x-delivery", "x-acquired")
"""With these begins what a call may not set: brokers do."""

REASON: Final = f"{OWN}reason"
"""Of a dead letter: why it is one."""

ORIGIN: Final = f"{OWN}origin"
"""Of a dead letter: the queue that it comes from."""

STARTED: Final = f"{OWN}started"
"""The begin of a dead letter's last run, as `taskmq.model.units.instant_text` writes it."""

DIED: Final = f"{OWN}died"
"""The instant at which a job became a dead letter, as `taskmq.model.units.instant_text` writes it."""

STARTS: Final = f"{OWN}starts"
"""Of a dead letter: how often its runs took their worker with them."""

PRIORITY: Final = f"{OWN}priority"
"""Of a dead letter: what it had."""

REPLAYED: Final = f"{OWN}replayed"
"""How often a dead letter was sent again."""

UNKNOWN: Final = f"{OWN}unknown"
"""How often a worker has met the message and not known its task."""

ATTEMPT: Final = f"{OWN}attempt"
"""Which attempt it is, for people in the console."""

OUTAGES: Final = f"{OWN}outages"
"""The number of outages that have interrupted runs of this attempt."""

ERROR: Final = f"{OWN}error"
"""The last error in one line."""

ERROR_TYPE: Final = f"{OWN}error-type"
"""Of a dead letter: the name of the last error's class."""

TRACEBACK: Final = f"{OWN}traceback"
"""Of a dead letter: the end of the last error's traceback."""

WORKER: Final = f"{OWN}worker"
"""Of a dead letter: the worker that wrote it."""

LEASE: Final = f"{OWN}lease"
"""Of a long run's standby message: the key of its lease."""

QUEUE: Final = f"{OWN}queue"
"""The queue that it was for, where it is in none: it could not be routed, or waited in the state."""

SEQUENCE: Final = f"{OWN}pub"
"""Which publish of its channel it is, where that has to be known when it comes back."""

REPUBLISHED: Final = f"{OWN}republished"
"""It was published again, because it was unknown whether the broker had it."""

ETA: Final = f"{OWN}eta"
"""The instant at which a job is due, for people in the console, as `taskmq.model.units.instant_text` writes it."""

TENANT: Final = f"{OWN}tenant"
"""The tenant of a job, for people in the console."""

OWNER: Final = f"{OWN}owner"
"""The owner of a stored job, for people in the console."""

JOB_PRIORITY: Final = f"{OWN}job-priority"
"""The priority that the job was sent with, 0 to 9, for people in the console."""

QUEUE_APP: Final = f"{OWN}app"
"""Argument of a queue: the app that has declared it, for people in the console."""

QUEUE_ABOUT: Final = f"{OWN}about"
"""Argument of a queue of all apps: what it holds, for people in the console."""

_LONGEST: Final = 128


class Labels(dict[str, str | int]):
    """Headers that are the same on many messages; never changed."""


def labels_of(tenant: str | None, priority: int | None, owner: str = "") -> Labels:
    """Return the headers by which people in the console tell jobs apart. Most jobs have none.

    Args:
        tenant: of the job; a longer one than taskmq takes is cut, and "" is none.
        priority: of the job; the middle one, and one that taskmq does not take, are left out.
        owner: of the job; a long one is cut, and "" is none.
    """
    labels = Labels()
    if tenant:
        labels[TENANT] = tenant[:_LONGEST]
    if priority is not None and priority != MIDDLE_PRIORITY and 0 <= priority <= 9:
        labels[JOB_PRIORITY] = priority
    if owner:
        labels[OWNER] = owner[:_LONGEST]
    return labels
