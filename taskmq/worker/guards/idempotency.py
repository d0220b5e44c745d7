"""Idempotency: the work of one key is done once.

The store claims the keys of stored jobs before their messages are published. The state claims the others:

    claim -- granted ---> run -- done --------> complete: its result answers all later jobs of the key
      |                     +--- anything else -> release: the retry, or the next job of the key, claims again
      +---- held -------> is its holder gone? --- yes -> pass the key on, and run
      |                                      +--- no --> back to the broker, look again later
      +---- done -------> answered, without a run

A holder counts as gone in three cases. Its own message was redelivered (the broker lost it): this counts once in a
row per job, so that two copies of one message do not take the key from each other forever. Its worker no longer
renews its liveness. Or it is this worker, which does not know of the claim. Every other holder keeps its lease.

A holder may be wrongly considered gone: it was frozen, or disconnected. So each claim has a larger token than those
before it (`Context.fencing_token`). Whatever a holder reports after it lost its key does not count: its message is
returned, and finds the work done by the new holder.

One lease says that the worker is alive. One call renews it every few seconds while the worker holds keys, and the
same loop renews the leases of keys that need it in one batch.
"""

import asyncio
import logging
import random
import secrets
from datetime import timedelta
from typing import Any, Final

from taskmq.app import TaskMQ
from taskmq.contracts.stores import ClaimStore, Done, Granted, Held, Lease, LeaseStore, ResultRecord
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import (
    InvalidArguments,
    ResultDamaged,
    ResultExpired,
    TaskMQError,
    UnsupportedFeature,
)
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.keys import tenant_key, worker_key
from taskmq.model.outcome import AlreadyDone, Dead, Interrupted, Outcome, Snoozed, Succeeded
from taskmq.model.values.light_values import REFERENCE
from taskmq.run.facts import SCHEDULE_NAME
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit

_log = logging.getLogger("taskmq.worker")

_LIVENESS: Final = 15.0
_RENEWALS: Final = 3
_AGAIN: Final = " again"
_UNSTORABLE: Final = "taskmq/unstorable"
# Seconds that a duplicate waits between two polls: this part of the time that the first run has taken so far.
_SHORTEST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0
_PART: Final = 0.5
_UNKNOWN: Final = timedelta(seconds=5)


class IdempotencyGuard:
    """Admits one run per idempotency key at a time, and answers duplicates of finished work.

    Args:
        worker: the worker's name, shown as the owner of its claims.
        lease: seconds until a key that is not renewed expires.
    """

    def __init__(self, app: TaskMQ, claims: ClaimStore, leases: LeaseStore, *, worker: str, lease: float) -> None:
        self._clock = app.sessions.clock
        self._claims = claims
        self._leases = leases
        self._owner = f"{worker} {secrets.token_hex(6)}"
        self._lease = lease
        self._liveness = min(_LIVENESS, lease)
        # None: the claim is in progress.
        self._held: dict[str, _HeldClaim | None] = {}
        self._alive_until = 0.0
        self._alive_token: int | None = None
        self._keeper = LeaseKeeper("keys of running jobs", seconds=self._liveness, renew=self._renew)

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        return task.idempotency_key is not None

    def concerns(self, attempt: Attempt) -> bool:
        """Return whether the job has a key, or its task derives one, and the store has not claimed it."""
        has_key = bool(attempt.envelope.key) or attempt.task.idempotency_key is not None
        return has_key and attempt.cancelled is None and not _is_claimed(attempt.envelope)

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        try:
            key = _key_of(attempt)
        except InvalidArguments as error:
            # Without its key the job could run twice.
            return Dead("invalid_arguments", error)
        if key is None:
            return _NOTHING
        name = _name(attempt, key)
        if name in self._held:
            claim = self._held[name]
            return _later(0.0 if claim is None else asyncio.get_running_loop().time() - claim.since)
        self._held[name] = None
        try:
            answer = await self._claim(attempt, name)
        except (ResultExpired, ResultDamaged) as error:
            # The work was done, and is not repeated.
            return Dead("result", error)
        finally:
            if self._held[name] is None:
                del self._held[name]
        match answer:
            case Granted(token):
                return self._hold(attempt, key, name, token)
            case Done():
                return _answer(attempt, answer)
            case Held():
                return _later(self._clock.now_ms() / 1000 - answer.token / 1e6, left=answer.left)

    async def _claim(self, attempt: Attempt, name: str) -> Granted | Held | Done:
        # Before the claim, because a competing worker checks whether its owner is alive.
        await self._say_alive()
        answer = await self._ask(attempt, name)
        if not isinstance(answer, Held):
            return answer
        is_own_message = answer.job_id == attempt.job_id and attempt.delivery.redelivered
        if is_own_message and not answer.owner.endswith(_AGAIN):
            why, is_again = "its message has come back", True
        elif await self._is_gone(answer.owner.removesuffix(_AGAIN)):
            why, is_again = "its worker is gone", False
        else:
            return answer
        _log.warning(
            "job %s of task %s takes over from job %s at %s: %s",
            attempt.job_id,
            attempt.envelope.task,
            answer.job_id,
            answer.owner,
            why,
        )
        return await self._ask(attempt, name, over=answer.token, is_again=is_again)

    async def _ask(
        self, attempt: Attempt, name: str, *, over: int | None = None, is_again: bool = False
    ) -> Granted | Held | Done:
        return await self._claims.claim(
            name,
            job_id=attempt.job_id,
            owner=f"{self._owner}{_AGAIN if is_again else ''}",
            lease=self._lease,
            ttl=_ttl_of(attempt),
            over=over,
        )

    async def _is_gone(self, owner: str) -> bool:
        if owner == self._owner:
            # An answer to this worker was lost, or its release failed.
            return True
        # A claim without a lease name was made before the state lost its data.
        return bool(owner) and await self._leases.find(worker_key(owner)) is None

    def _hold(self, attempt: Attempt, key: str, name: str, token: int) -> Permit:
        claim = _HeldClaim(self, attempt, name, token, since=asyncio.get_running_loop().time())
        self._held[name] = claim
        attempt.fence = (key, token)
        self._keeper.watch()
        return claim

    async def release(self, claim: "_HeldClaim", outcome: Outcome, record: ResultRecord | None) -> bool:
        """Record the end of a key's work; return False if it does not count."""
        counts = await self._record_end(claim, outcome, record)
        # Only now: a failed call is repeated, and the key is renewed meanwhile.
        if self._held.get(claim.name) is claim:
            del self._held[claim.name]
        return counts or isinstance(outcome, Interrupted)

    async def _record_end(self, claim: "_HeldClaim", outcome: Outcome, record: ResultRecord | None) -> bool:
        is_unstorable = isinstance(outcome, Dead) and outcome.reason == "result"
        if not isinstance(outcome, Succeeded) and not is_unstorable:
            return await self._claims.release(claim.name, token=claim.token)
        value = b"" if record is None or is_unstorable else record.value
        return await self._claims.complete(
            claim.name,
            token=claim.token,
            job_id=claim.attempt.job_id,
            content_type=_UNSTORABLE if is_unstorable or record is None else record.content_type,
            value=value,
            ttl=_ttl_of(claim.attempt),
        )

    async def _renew(self) -> bool:
        if not self._held:
            return False
        await self._say_alive()
        started = asyncio.get_running_loop().time()
        due = {
            name: claim
            for name, claim in self._held.items()
            if claim is not None and not claim.is_lost and started - claim.renewed >= self._lease / _RENEWALS
        }
        if not due:
            return True
        lost = await self._claims.renew({name: claim.token for name, claim in due.items()}, lease=self._lease)
        for name, claim in due.items():
            claim.renewed = started
            if name in lost and self._held.get(name) is claim:
                claim.lose()
        return bool(self._held)

    async def _say_alive(self) -> None:
        """Renew this worker's liveness, unless it was renewed a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._alive_until - now > self._liveness * (1 - 1 / _RENEWALS):
            return
        name, token = worker_key(self._owner), self._alive_token
        if token is None or not await self._leases.renew(name, token=token, seconds=self._liveness):
            taken = await self._leases.acquire(name, owner=self._owner, seconds=self._liveness)
            # No other holder can have it: another call of this worker acquired it, or the answer was lost.
            self._alive_token = taken.token if isinstance(taken, Lease) else taken
        self._alive_until = now + self._liveness


class _HeldClaim:
    """A key that this worker holds."""

    __slots__ = ("_guard", "attempt", "is_lost", "name", "renewed", "since", "token")

    def __init__(self, guard: IdempotencyGuard, attempt: Attempt, name: str, token: int, *, since: float) -> None:
        self._guard = guard
        self.attempt = attempt
        self.name = name
        self.token = token
        self.since = self.renewed = since
        self.is_lost = False

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:
        return await self._guard.release(self, outcome, record)

    def lose(self) -> None:
        """Mark the key as lost to another holder: the run's work does not count, and the run can check that."""
        self.is_lost = True
        _log.warning(
            "job %s of task %s has lost its idempotency key to another run; its result will not count",
            self.attempt.job_id,
            self.attempt.envelope.task,
        )
        if self.attempt.execution is not None:
            self.attempt.execution.context.mark_cancelled()


class StoredKeys:
    """Replaces the guard without a state: jobs with a key run only if the store has claimed it."""

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        return task.idempotency_key is not None

    def concerns(self, attempt: Attempt) -> bool:
        key = attempt.envelope.key
        # The job id alone is not a requested key: its sender has a state, and this worker has none.
        has_key = bool(key) and (key != attempt.job_id or _is_scheduled(attempt.envelope))
        needs_key = has_key or self.concerns_task(attempt.task)
        return needs_key and attempt.cancelled is None and not _is_claimed(attempt.envelope)

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        if attempt.envelope.key and attempt.envelope.store is not None:
            # Published by a scheduler that did not know of keys.
            return Snoozed(_UNKNOWN)
        return Dead(
            "rejected",
            UnsupportedFeature(
                f"job {attempt.job_id} of task {attempt.envelope.task} has an idempotency key without a claim of the "
                "store, and this worker has no state: submit it to the store, or set TaskMQ(..., "
                "state='redis://...') or $TASKMQ_STATE and replay it"
            ),
        )


class _NoClaim:
    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - permits are called so
        return True


_NOTHING: Final = _NoClaim()


def _key_of(attempt: Attempt) -> str | None:
    """Return the job's key: the one it was sent with, else one derived from its arguments.

    Returns None if the task derives no keys, or the arguments do not fit it.

    Raises:
        InvalidArguments: the arguments fit, but yield no key.
    """
    if attempt.envelope.key:
        return attempt.envelope.key
    maker, envelope = attempt.task.idempotency_key, attempt.envelope
    if maker is None:
        return None
    try:
        arguments = attempt.task.signature.decode(
            envelope.args, envelope.kwargs, attempt.delivery.content_type or JSON
        )
    except InvalidArguments:
        # The run reports the same error.
        return None
    return maker.of(*arguments)


def _ttl_of(attempt: Attempt) -> float:
    """Return the seconds for which the attempt's key is remembered."""
    envelope = attempt.envelope
    key = envelope.key or ""
    # Beat's key is the whole id, a scheduler's the id within the tenant.
    is_own_id = attempt.job_id in (key, tenant_key(envelope.tenant, key))
    is_occurrence = is_own_id and _is_scheduled(envelope)
    return attempt.task.plan.idempotency.ttl_of(is_occurrence=is_occurrence)


def _is_claimed(envelope: Envelope) -> bool:
    """Return whether the store has claimed the job's key for this message."""
    return envelope.store is not None and bool(envelope.store.fence)


def _is_scheduled(envelope: Envelope) -> bool:
    return envelope.meta is not None and SCHEDULE_NAME in envelope.meta


def _name(attempt: Attempt, key: str) -> str:
    envelope = attempt.envelope
    return attempt.task.plan.idempotency.name_of(envelope.task, key, tenant=envelope.tenant)


def _later(age: float, *, left: float = _LONGEST_WAIT) -> Snoozed:
    wait = min(max(age * _PART, _SHORTEST_WAIT), _LONGEST_WAIT, left + _SHORTEST_WAIT)
    return Snoozed(timedelta(seconds=wait * random.uniform(0.8, 1.2)))


def _answer(attempt: Attempt, done: Done) -> Outcome:
    if done.content_type == _UNSTORABLE and attempt.task.plan.result is not False:
        error = TaskMQError(f"the work was done by job {done.job_id}, whose result could not be stored")
        return Dead("result", error)
    if done.content_type == REFERENCE:
        text = (
            f"the work was done by job {done.job_id}, whose result is kept beside the state: this worker needs the "
            "results_at= of the one that has done it"
        )
        return Dead("result", UnsupportedFeature(text))
    if not done.content_type:
        # The task kept no results when the work was done.
        return AlreadyDone(JSON, b"null")
    return AlreadyDone(done.content_type, done.value)
