"""Claims of one partition's jobs that the store decides: without a state all, and with one the order of keys.

dispatched -> add -> take_claims in the store -- held ----> published
                                              -- closed --> wait: it is behind a gate
a job left, or time passed -> due -> open_claims in the store -> record_opened
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import DispatchedJob, JobClaim, OpenedClaims, TakenClaims, WorkDone
from taskmq.contracts.stores import PlaceDemand
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.reports import Report
from taskmq.model.keys import is_line_key, line_key, once_key
from taskmq.model.units import storable
from taskmq.options.limits import Concurrency
from taskmq.options.uniqueness import NO_IDEMPOTENCY
from taskmq.run.context import SCHEDULE_NAME
from taskmq.scheduler.gates.demands import TaskDemands
from taskmq.tasks.task import Task

__all__ = ["ClaimWaits", "ClaimsOf", "TaskClaims", "answer_of", "fence_of"]

ClaimsOf = Callable[[DispatchedJob], tuple[JobClaim, ...]]
"""Returns the claims of a job."""

_KEY: Final = b'"key":'
_ORDER: Final = b'"order_key":'
# The holder may have ended while the store moved the job behind the gate.
_FIRST_CHECK: Final = 0.05
_CHECK: Final = 1.0


class TaskClaims:
    """The claims of one app's jobs: the concurrency limits of their tasks, their idempotency keys, and their lines.

    Args:
        has_state: whether the app's state decides all claims but the lines.
    """

    def __init__(self, tasks: Mapping[str, Task[..., Any]], *, has_state: bool = False) -> None:
        self._tasks = tasks
        self._has_state = has_state
        self._demands = TaskDemands(tasks.values(), is_final=True, only=Concurrency)

    def of(self, job: DispatchedJob) -> tuple[JobClaim, ...]:
        """Return the claims of a job."""
        # Few jobs have a key, and searching the bytes is cheap.
        lines = self._lines_of(job) if _ORDER in job.body else ()
        # The line comes first: a job behind others in it could not use a place.
        return lines if self._has_state else (*lines, *self._keys_and_places_of(job))

    def _keys_and_places_of(self, job: DispatchedJob) -> tuple[JobClaim, ...]:
        demands = self._demands.of(job.task, job.body)
        if not demands and _KEY not in job.body:
            return ()
        places = [
            JobClaim(storable(demand.key), demand.places) for demand in demands if isinstance(demand, PlaceDemand)
        ]
        key = self._key_of(job) if _KEY in job.body else None
        return tuple(places) if key is None else (key, *places)

    def _lines_of(self, job: DispatchedJob) -> tuple[JobClaim, ...]:
        try:
            envelope = decode_envelope(job.body)
        except MalformedMessage:
            return ()
        if envelope.order_key is None:
            return ()
        return (JobClaim(storable(line_key(job.queue, envelope.order_key, tenant=envelope.tenant))),)

    def _key_of(self, job: DispatchedJob) -> JobClaim | None:
        try:
            envelope = decode_envelope(job.body)
        except MalformedMessage:
            return None
        if envelope.key is None:
            return None
        task = self._tasks.get(job.task)
        rule = NO_IDEMPOTENCY if task is None else task.plan.idempotency
        name = once_key(rule.scope or job.task, envelope.key, tenant=envelope.tenant)
        is_occurrence = envelope.key == envelope.id and SCHEDULE_NAME in (envelope.meta or {})
        return JobClaim(storable(name), ttl=round(rule.ttl_of(is_occurrence=is_occurrence) * 1000))


def answer_of(job: DispatchedJob, done: WorkDone, *, proof: str = "") -> Report:
    """Return the report that ends a job without a run, because the work of its key was done."""
    return Report(
        id=job.id,
        token=job.token,
        proof=proof,
        kind="succeeded",
        attempt=job.attempt,
        content_type=done.content_type,
        result=done.result,
    )


def fence_of(job: DispatchedJob, taken: TakenClaims) -> int | None:
    """Return the fence of a job that holds its claims; None if its only claim is a line."""
    return None if all(is_line_key(claim.name) for claim in job.claims) else taken.fences[job.id]


class ClaimWaits:
    """Claims of the jobs in flight, and claims that ready jobs wait for. Times are seconds."""

    def __init__(self, claims_of: ClaimsOf) -> None:
        self._claims_of = claims_of
        self._flights: dict[str, tuple[JobClaim, ...]] = {}
        # Places of the claims.
        self._freed: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._next_check = math.inf

    def add(self, jobs: Sequence[DispatchedJob]) -> None:
        """Record dispatched jobs, including those of an earlier holder of the partition."""
        self._flights.update((job.id, claims) for job in jobs if (claims := self._claims_of(job)))

    def of(self, job_id: str) -> tuple[JobClaim, ...]:
        """Return the claims of a job in flight."""
        return self._flights.get(job_id, ())

    def wait(self, job_id: str, name: str | None = None, *, now: float) -> None:
        """Record that a job in flight was moved behind the gate of a claim; None: perhaps, behind that of any."""
        for claim in self._flights.pop(job_id, ()):
            if name in {None, claim.name}:
                self._waiting[claim.name] = claim.places
                self._next_check = min(self._next_check, now + _FIRST_CHECK)

    def remove(self, job_id: str) -> bool:
        """Remove a job in flight. Returns whether it had claims, for which jobs of any partition may wait."""
        claims = self._flights.pop(job_id, None)
        if claims is None:
            return False
        self._freed.update((claim.name, claim.places) for claim in claims)
        return True

    def due(self, *, now: float) -> dict[str, int]:
        """Return the claims that may have free places, with their places."""
        found, self._freed = self._freed, {}
        if now >= self._next_check:
            found |= self._waiting
            self._next_check = now + _CHECK
        return found

    def record_opened(self, asked: Mapping[str, int], opened: OpenedClaims) -> None:
        """Forget requested claims that no job waits for any more."""
        for name in asked.keys() - opened.waiting:
            self._waiting.pop(name, None)
        if not self._waiting:
            self._next_check = math.inf

    def restore(self, asked: Mapping[str, int]) -> None:
        """Return claims to be asked for again, because the store did not answer."""
        self._freed |= asked

    def next(self) -> float:
        """Return when to call `due` next; infinity if no time is set."""
        return -math.inf if self._freed else self._next_check
