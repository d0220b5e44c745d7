"""Unique jobs: the key is freed when the job starts, or when it ends.

A replaced job is cancelled. A job that lost its key for another reason (it expired, the state lost its data) runs all
the same. If keys are held until the end, it runs after the present holder. No job is lost because of a key.
"""

import random
from datetime import timedelta
from typing import Any, Final

from taskmq.client.unique import REMEMBERED, RUNNING, WAITING, unique_claim_of
from taskmq.contracts.stores import ClaimStore, Done, Granted, Held, ResultRecord
from taskmq.model.keys import replaced_key
from taskmq.model.outcome import Cancelled, Interrupted, Outcome, Retried, Snoozed
from taskmq.options.uniqueness import UNIQUE_META, Uniqueness
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit

_PAUSE: Final = (0.5, 1.5)
_GOES_ON: Final = (Retried, Snoozed, Interrupted)


class UniqueGuard:
    """Frees the unique key of a job when it starts or ends, as its task defines."""

    def __init__(self, claims: ClaimStore) -> None:
        self._claims = claims

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        rule = task.plan.unique
        return rule is not None and rule.policy != "throttle"

    def concerns(self, attempt: Attempt) -> bool:
        meta = attempt.envelope.meta
        return self.concerns_task(attempt.task) and meta is not None and UNIQUE_META in meta

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        rule, claim = attempt.task.plan.unique, unique_claim_of(attempt.envelope.meta)
        if rule is None or claim is None:
            return _KeyFree()
        name, token = claim
        # After a job was replaced, its successor may have started and ended.
        if rule.replaces and (found := await self._find_replacement(attempt)) is not None:
            return found
        if rule.until == "waiting":
            if attempt.envelope.attempt == 1:
                await self._claims.release(name, token=token)
            return _KeyFree()
        held = await self._take(attempt, rule, name, token)
        if held is not None:
            return _KeyHeld(self._claims, rule, attempt.job_id, name, held)
        if attempt.cancelled is not None:
            return _KeyFree()
        return Snoozed(timedelta(seconds=random.uniform(*_PAUSE)))

    async def _find_replacement(self, attempt: Attempt) -> Cancelled | None:
        found = await self._claims.find(replaced_key(attempt.job_id))
        return Cancelled(f"replaced by job {found.job_id}") if isinstance(found, Done) else None

    async def _take(self, attempt: Attempt, rule: Uniqueness, name: str, token: int) -> int | None:
        """Acquire the key for a run; None if another job holds it."""
        over = token
        for _ in range(2):
            answer = await self._claims.claim(
                name, job_id=attempt.job_id, owner=RUNNING, lease=rule.ttl, ttl=REMEMBERED, over=over
            )
            if isinstance(answer, Granted):
                return answer.token
            if not isinstance(answer, Held) or answer.job_id != attempt.job_id:
                return None
            # The claim is of an earlier run of the same job.
            over = answer.token
        return None


class _KeyFree:
    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - permits are called so
        return True


class _KeyHeld:
    """A key that is held until its job ends."""

    def __init__(self, claims: ClaimStore, rule: Uniqueness, job_id: str, name: str, token: int) -> None:
        self._claims = claims
        self._rule = rule
        self._job_id = job_id
        self._name = name
        self._token = token

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - permits are called so
        if not isinstance(outcome, _GOES_ON):
            await self._claims.release(self._name, token=self._token)
        elif self._rule.replaces:
            # The job waits again, and may be replaced.
            await self._claims.claim(
                self._name,
                job_id=self._job_id,
                owner=WAITING,
                lease=self._rule.ttl,
                ttl=REMEMBERED,
                over=self._token,
            )
        return True
