"""Which jobs of the store are meant. Pure."""

from typing import Final, Literal

import msgspec

from taskmq.model.states import TERMINAL, JobState

__all__ = ["EVERYTHING", "UNSUCCESSFUL", "JobFilter", "Retried"]

Retried = Literal["", "yes", "no", "any"]

UNSUCCESSFUL: Final = TERMINAL - {JobState.SUCCEEDED}
"""Ends that a retry settles: who looks for them looks for what is yet to be done."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that fit all of what is said; a field that is empty says nothing. Times are ms since the epoch.

    Attributes:
        tenant: of this tenant; None: of any. "" is the tenant of jobs that have none.
        states: in any of them.
        tasks, queues, keys: with any of these names.
        task_prefix: whose task's name begins so.
        errors: that have failed with an error of any of these types.
        submitted_from, submitted_before: submitted at or after, and before.
        due_from, due_before: due at or after, and before.
        finished_from, finished_before: ended at or after, and before, by the clock of who has ended them.
        min_attempt: of which at least this is the attempt.
        min_ran: ms that its last run took, or has taken until now where it goes on.
        min_waited: ms from when it was due until it first started, or until now where it waits for a worker. If a
            retry or a pause has given it another time since, from that time until it started again.
        labels: that have all of these.
        ids: these.
        retried: whether another job repeats it: `yes`, `no`, or `any` of both. "": of the unsuccessful ends among
            `states` those that no other job repeats, and else any.
    """

    tenant: str | None = None
    states: frozenset[JobState] = frozenset()
    tasks: tuple[str, ...] = ()
    task_prefix: str = ""
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    submitted_from: int | None = None
    submitted_before: int | None = None
    due_from: int | None = None
    due_before: int | None = None
    finished_from: int | None = None
    finished_before: int | None = None
    min_attempt: int | None = None
    min_ran: int | None = None
    min_waited: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    ids: tuple[str, ...] = ()
    retried: Retried = ""

    def wants_retried(self, state: JobState) -> bool | None:
        """Whether jobs in this state have to be retried (True), must not be (False), or may be either."""
        if self.retried in ("yes", "no"):
            return self.retried == "yes"
        return False if not self.retried and state in self.states and state in UNSUCCESSFUL else None


EVERYTHING: Final = JobFilter()
