"""Claims of one partition's jobs that the store decides: lines and idempotency keys, and without a state also limits.

dispatched -> add -> take_claims in the store -- held ----> published
                                              -- closed --> wait: it is behind a gate
a job left, or time passed -> due -> open_claims in the store -> record_opened
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from taskmq.contracts.jobs import DispatchedJob, JobClaim, OpenedClaims, ReadyJob, TakenClaims, WorkDone
from taskmq.contracts.stores import PlaceDemand
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.reports import Report
from taskmq.model.keys import is_line_key, is_once_key, line_key, tenant_key
from taskmq.model.units import storable
from taskmq.options.limits import Concurrency
from taskmq.options.uniqueness import NO_IDEMPOTENCY
from taskmq.run.facts import SCHEDULE_NAME
from taskmq.scheduler.gates.demands import TaskDemands
from taskmq.tasks.task import Task

ClaimsOf = Callable[[str, str, bytes], tuple[JobClaim, ...]]
"""Returns the claims of a job by its task, queue and body."""

_KEY: Final = b'"key":'
_ORDER: Final = b'"order_key":'
# The holder may have ended while the store moved the job behind the gate.
_FIRST_CHECK: Final = 0.05
_CHECK: Final = 1.0
# Most claims that one periodic check asks for; the others follow in turn.
_CHECKED: Final = 500
# Seconds for which ready jobs of a queue are examined after one of its jobs had to wait for a claim.
_CONTENDED: Final = 60.0
_MOST_DONE: Final = 10_000


class TaskClaims:
    """The claims of one app's jobs: the concurrency limits of their tasks, their idempotency keys, and their lines.

    Args:
        has_state: whether the app's state decides concurrency limits, and the keys of occurrences that a beat may
            have sent.
    """

    def __init__(self, tasks: Mapping[str, Task[..., Any]], *, has_state: bool = False) -> None:
        self._tasks = tasks
        self._has_state = has_state
        limited = () if has_state else tasks.values()
        self._demands = TaskDemands(limited, is_final=True, only=Concurrency)

    def of(self, task: str, queue: str, body: bytes) -> tuple[JobClaim, ...]:
        """Return the claims of a job."""
        # Few jobs have a key, and searching the bytes is cheap.
        lines = self._lines_of(queue, body) if _ORDER in body else ()
        keys = self._keys_of(task, body) if _KEY in body else ()
        # The line comes first: a job behind others in it could not use a place.
        return (*lines, *keys, *self._places_of(task, body))

    def _places_of(self, task: str, body: bytes) -> list[JobClaim]:
        demands = self._demands.of(task, body)
        return [JobClaim(storable(each.key), each.places) for each in demands if isinstance(each, PlaceDemand)]

    @staticmethod
    def _lines_of(queue: str, body: bytes) -> tuple[JobClaim, ...]:
        try:
            envelope = decode_envelope(body)
        except MalformedMessage:
            return ()
        if envelope.order_key is None:
            return ()
        return (JobClaim(storable(line_key(queue, envelope.order_key, tenant=envelope.tenant))),)

    def _keys_of(self, name: str, body: bytes) -> tuple[JobClaim, ...]:
        try:
            envelope = decode_envelope(body)
        except MalformedMessage:
            return ()
        if envelope.key is None:
            return ()
        is_own_id = tenant_key(envelope.tenant, envelope.key) == envelope.id
        is_occurrence = is_own_id and SCHEDULE_NAME in (envelope.meta or {})
        if is_occurrence and self._has_state:
            # The beat's message has its key there.
            return ()
        task = self._tasks.get(name)
        rule = NO_IDEMPOTENCY if task is None else task.plan.idempotency
        key = rule.name_of(name, envelope.key, tenant=envelope.tenant)
        return (JobClaim(storable(key), ttl=round(rule.ttl_of(is_occurrence=is_occurrence) * 1000)),)


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
        self._in_use: Counter[str] = Counter()
        # Keys whose work is done: their jobs need no place.
        self._done: set[str] = set()
        # Until when ready jobs of a queue are examined.
        self._contended: dict[str, float] = {}
        # Places of the claims. Those with new waiting jobs are fresh, and the others are checked in turn.
        self._freed: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._fresh: set[str] = set()
        self._next_check = math.inf

    def add(self, jobs: Sequence[DispatchedJob]) -> None:
        """Record dispatched jobs, including those of an earlier holder of the partition."""
        for job in jobs:
            if claims := self._claims_of(job.task, job.queue, job.body):
                self._remove(job.id)
                self._flights[job.id] = claims
                self._in_use.update(claim.name for claim in claims)

    def of(self, job_id: str) -> tuple[JobClaim, ...]:
        """Return the claims of a job in flight."""
        return self._flights.get(job_id, ())

    def may_wait(self, queue: str, *, now: float) -> bool:
        """Whether ready jobs of the queue may have to wait for claims."""
        return self._contended.get(queue, -math.inf) > now

    def turn(self, *, now: float) -> "ClaimTurn":
        """Return the claims as ready jobs find them now."""
        return ClaimTurn(self, self._claims_of, self._in_use, self._done, now=now)

    def wait(self, job_id: str, name: str | None = None, *, queue: str, now: float) -> None:
        """Record that a job in flight was moved behind the gate of a claim; None: perhaps, behind that of any."""
        for claim in self._remove(job_id):
            if name in {None, claim.name}:
                self.wait_for(claim, queue=queue, now=now)

    def wait_for(self, claim: JobClaim, *, queue: str, now: float) -> None:
        """Record that a job of the queue waits for a claim."""
        self._contended[queue] = now + _CONTENDED
        self._waiting[claim.name] = claim.places
        self._fresh.add(claim.name)
        self._next_check = min(self._next_check, now + _FIRST_CHECK)

    def adopt(self, gate: str) -> bool:
        """Adopt jobs that an earlier holder of the partition moved behind a gate. Returns whether it is a claim's.

        Whatever the code of the app is by now, one job at a time holds a line or a key.
        """
        if not is_line_key(gate) and not is_once_key(gate):
            return False
        self._waiting.setdefault(gate, 1)
        self._next_check = -math.inf
        return True

    def record_done(self, names: Collection[str]) -> None:
        """Record keys whose work is done."""
        if len(self._done) + len(names) > _MOST_DONE:
            self._done.clear()
        self._done.update(names)

    def remove(self, job_id: str) -> bool:
        """Remove a job in flight. Returns whether it had claims, for which jobs of any partition may wait."""
        claims = self._remove(job_id)
        self._freed.update((claim.name, claim.places) for claim in claims)
        return bool(claims)

    def due(self, *, now: float) -> dict[str, int]:
        """Return the claims that may have free places, with their places."""
        found, self._freed = self._freed, {}
        if now >= self._next_check:
            fresh, self._fresh = self._fresh, set()
            turn = [name for name in islice(self._waiting, _CHECKED) if name not in fresh]
            for name in turn:
                # The next checks ask for it last.
                self._waiting[name] = self._waiting.pop(name)
            found |= {name: self._waiting[name] for name in (*turn, *fresh) if name in self._waiting}
            self._next_check = now + _CHECK
        return found

    def record_opened(self, asked: Mapping[str, int], opened: OpenedClaims) -> None:
        """Forget requested claims that no job waits for any more."""
        self.record_done(opened.done)
        # The store may have answered before it moved a job behind a fresh one.
        for name in asked.keys() - opened.waiting - self._fresh:
            self._waiting.pop(name, None)
        if not self._waiting:
            self._next_check = math.inf

    def restore(self, asked: Mapping[str, int]) -> None:
        """Return claims to be asked for again, because the store did not answer."""
        self._freed |= asked

    def next(self) -> float:
        """Return when to call `due` next; infinity if no time is set."""
        return -math.inf if self._freed else self._next_check

    def _remove(self, job_id: str) -> tuple[JobClaim, ...]:
        claims = self._flights.pop(job_id, ())
        for claim in claims:
            self._in_use[claim.name] -= 1
            if not self._in_use[claim.name]:
                del self._in_use[claim.name]
        return claims


class ClaimTurn:
    """The places of claims while ready jobs are examined in their order.

    It is a prediction, so that few jobs are dispatched in vain: `take_claims` decides.
    """

    def __init__(
        self, waits: ClaimWaits, claims_of: ClaimsOf, in_use: Mapping[str, int], done: Collection[str], *, now: float
    ) -> None:
        self._waits = waits
        self._claims_of = claims_of
        self._in_use = in_use
        self._done = done
        self._now = now
        self._taken: Counter[str] = Counter()

    def find_closed(self, job: ReadyJob) -> str | None:
        """Return the claim that the job has to wait for; None if it may be dispatched."""
        for claim in self._of(job):
            if self._in_use.get(claim.name, 0) + self._taken[claim.name] >= claim.places:
                self._waits.wait_for(claim, queue=job.lane.queue, now=self._now)
                return claim.name
        return None

    def take(self, job: ReadyJob) -> None:
        """Record that the job will be dispatched."""
        self._taken.update(claim.name for claim in self._of(job))

    def _of(self, job: ReadyJob) -> list[JobClaim]:
        if not self._waits.may_wait(job.lane.queue, now=self._now):
            return []
        claims = self._claims_of(job.task, job.lane.queue, job.body)
        return [claim for claim in claims if claim.name not in self._done]
