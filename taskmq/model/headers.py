"""Names of taskmq's own message headers: part of the wire format. Pure."""

from typing import Final

from taskmq.model.topology import MIDDLE_PRIORITY

OWN: Final = "x-taskmq-"
"""Prefix of all of taskmq's headers."""

BROKERS_OWN: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")
"""Prefixes of headers that brokers write."""

RESERVED: Final = ("x-death", "x-delivery", "x-acquired")
"""Prefixes of headers that a call may not set, because brokers do."""

REASON: Final = f"{OWN}reason"
"""Reason of a dead letter."""

ORIGIN: Final = f"{OWN}origin"
"""Original queue of a dead letter."""

STARTED: Final = f"{OWN}started"
"""Start of the last run of a dead letter, as `taskmq.model.units.instant_text` writes it."""

DIED: Final = f"{OWN}died"
"""The instant at which a job became a dead letter, as `taskmq.model.units.instant_text` writes it."""

STARTS: Final = f"{OWN}starts"
"""Number of runs of a dead letter that crashed their worker."""

PRIORITY: Final = f"{OWN}priority"
"""Original priority of a dead letter."""

REPLAYED: Final = f"{OWN}replayed"
"""The number of times that a dead letter was replayed."""

UNKNOWN: Final = f"{OWN}unknown"
"""The number of times that a worker received the message without having its task."""

ATTEMPT: Final = f"{OWN}attempt"
"""The attempt's number, for people in the console."""

OUTAGES: Final = f"{OWN}outages"
"""The number of outages that interrupted runs of this attempt."""

ERROR: Final = f"{OWN}error"
"""The last error in one line."""

ERROR_TYPE: Final = f"{OWN}error-type"
"""Class name of the last error of a dead letter."""

TRACEBACK: Final = f"{OWN}traceback"
"""End of the traceback of the last error of a dead letter."""

WORKER: Final = f"{OWN}worker"
"""Worker that wrote a dead letter."""

LEASE: Final = f"{OWN}lease"
"""Lease key in the standby message of a long run."""

QUEUE: Final = f"{OWN}queue"
"""The queue of a message that is in none: it could not be routed, or waited in the state."""

SEQUENCE: Final = f"{OWN}pub"
"""The number of a publish within its channel, for messages that RabbitMQ may return."""

REPUBLISHED: Final = f"{OWN}republished"
"""Marks a message that was published again because no confirm for it arrived."""

ETA: Final = f"{OWN}eta"
"""The instant at which a job is due, for people in the console, as `taskmq.model.units.instant_text` writes it."""

TENANT: Final = f"{OWN}tenant"
"""The tenant of a job, for people in the console."""

OWNER: Final = f"{OWN}owner"
"""The owner of a stored job, for people in the console."""

JOB_PRIORITY: Final = f"{OWN}job-priority"
"""The priority that the job was sent with, 0 to 9, for people in the console."""

QUEUE_APP: Final = f"{OWN}app"
"""Argument of a queue: the app that declared it, for people in the console."""

QUEUE_ABOUT: Final = f"{OWN}about"
"""Argument of a queue that all apps share: what it holds, for people in the console."""

_LONGEST: Final = 128


class Labels(dict[str, str | int]):
    """Headers that many messages share; never modified."""


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
