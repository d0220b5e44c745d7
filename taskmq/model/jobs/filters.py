"""Filters that select stored jobs. Pure."""

from typing import Final, Literal

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.states import TERMINAL, JobState

Retried = Literal["", "yes", "no", "any"]
Via = Literal["store", "broker"]
ViaChoice = Literal["store", "broker", "any"]

UNSUCCESSFUL: Final = TERMINAL - {JobState.SUCCEEDED}
"""Ends that a retry settles: filters for them exclude jobs that were retried."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions that jobs must match; an unset field matches everything. Times are ms since the epoch.

    Attributes:
        tenant: the tenant; None: any. "" is the tenant of jobs without one.
        states: any of these states.
        tasks, queues, keys: any of these names.
        task_prefix: prefix of the task's name.
        errors: types of the last error, any of them.
        submitted_from, submitted_before: half-open range of the submission time.
        due_from, due_before: half-open range of the due time.
        finished_from, finished_before: half-open range of the end, by the clock of the process that ended the job.
        min_attempt: minimum attempt.
        min_ran: minimum duration of the last run in ms; until now if it is still running.
        min_waited: minimum of ms from due to the first start, or until now if it waits for a worker. If a retry or a
            pause gave it another due time, from that time to the next start.
        labels: all of these labels.
        ids: any of these ids.
        retried: whether another job repeats it: `yes`, `no`, or `any`. "": `no` for the unsuccessful ends among
            `states`, and `any` for other states.
        via: `store`: stored jobs; `broker`: recorded sent jobs (`record="all"`); `any`: both. "": both if jobs are
            erased, else stored jobs.
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
    via: ViaChoice | Literal[""] = ""

    def check_stored(self) -> None:
        """Check that the filter selects stored jobs only.

        Raises:
            InvalidOption: it also selects sent jobs, or only those.
        """
        if self.via in ("broker", "any"):
            raise InvalidOption(f"via:{self.via} selects sent jobs, but only stored ones are possible here: omit it")

    def wants_retried(self, state: JobState) -> bool | None:
        """Return whether jobs in this state must have been retried (True), must not (False), or either (None)."""
        if self.retried in ("yes", "no"):
            return self.retried == "yes"
        return False if not self.retried and state in self.states and state in UNSUCCESSFUL else None


EVERYTHING: Final = JobFilter()
