"""Random values for the steps of a history, chosen from the model."""

import random
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    DispatchedJob,
    JobDetail,
    NewJob,
)
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.limits import RateDemand
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store_suite.driver import HOUR, LONG, JobDriver, error, forged_token, later, new_id
from taskmq.testing.job_store_suite.models.claims import ClaimSteps

QUEUES: Final = ("mail", "sms", "fax")
"""Queues of the jobs."""
REPORTS: Final = "taskmq.reports.suite.0"
"""Queue that the reports came from."""
_KINDS: Final[tuple[ReportKind, ...]] = (
    "started", "started", "succeeded", "failed", "retry", "retry", "snoozed", "expired", "cancelled", "refused",
    "interrupted", "detached", "held",
)  # fmt: skip
_FAILING: Final = frozenset({"failed", "retry", "refused", "snoozed", "held"})
_FILTERS: Final = (
    JobFilter(),
    JobFilter(tenant="acme"),
    JobFilter(states=UNDERWAY),
    JobFilter(states=TERMINAL, task_prefix="a_"),
    JobFilter(queues=("mail", "sms"), states=frozenset({JobState.QUEUED})),
    JobFilter(labels=(("team", "a"),)),
    JobFilter(min_attempt=2, tenant=""),
)


def _slow_rates() -> tuple[tuple[RateDemand, ...], ...]:
    """Return combinations of rates that do not recover during a test, with keys of their own."""
    plain = RateDemand(key=f"rate:{new_id(0)}", interval=LONG, burst=3)
    strict = RateDemand(key=f"rate:{new_id(0)}", interval=LONG, strict=True)
    return (plain,), (strict,), (plain, strict)


class RandomValues:
    """Random values of one history."""

    def __init__(self, dice: random.Random, driver: JobDriver, model: JobModel, claims: ClaimSteps) -> None:
        self.rates: tuple[tuple[RateDemand, ...], ...] = _slow_rates()
        self._dice = dice
        self._driver = driver
        self._model = model
        self._claims = claims
        self._bodies = 0

    def body(self) -> bytes:
        """Return a body that no job has had."""
        self._bodies += 1
        return b'{"task":"b%d"}' % self._bodies

    def filter(self) -> JobFilter:
        return self._dice.choice(_FILTERS)

    async def new_job(self) -> NewJob:
        dice = self._dice
        has_key = dice.random() < 0.4
        tenant = dice.choice(("", "acme"))
        job = await self._driver.new(
            tenant=tenant,
            key=f"k{dice.randrange(8)}" if has_key else None,
            fingerprint=bytes([dice.randrange(2)]) if has_key else b"",
            task=dice.choice(("a.x", "a_x", "b")),
            queue=dice.choice(QUEUES),
            priority=dice.choice((0, 4, 9)),
            due=dice.choice((-HOUR, 0, 0, HOUR, 2 * HOUR)),
            expires=dice.choice((None, None, None, -1, 9 * HOUR)),
            held=dice.random() < 0.1,
            body=self.body(),
            detail=self._detail(tenant, has_key=has_key),
        )
        return replace(job, line=self._claims.line_of(job.id))

    def _detail(self, tenant: str, *, has_key: bool) -> JobDetail | None:
        dice = self._dice
        labels = {"team": dice.choice("ab")} if dice.random() < 0.3 else {}
        # A rejected job does not reserve its key: of two jobs in one call, a store may answer either first.
        known = [job.id for job in self._model.jobs.values() if not has_key or job.tenant == tenant]
        depends_on: list[JobDependency] = []
        if known and dice.random() < 0.4:
            # Only one dependency has a condition that can fail, so the reason is certain.
            first, *others = dice.sample(known, k=min(dice.choice((1, 1, 2, 3)), len(known)))
            depends_on = [JobDependency(first, dice.choice(("succeeded", "succeeded", "ended", "failed")))]
            depends_on += [JobDependency(other, "ended") for other in others]
        detail = JobDetail(labels=labels, depends_on=tuple(depends_on))
        return None if detail == JobDetail() else detail

    def changes(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in (
                ("priority", self._dice.choice((0, 4, 9))),
                ("queue", self._dice.choice(QUEUES)),
                ("body", b'{"task":"changed"}'),
                ("expires", self._dice.choice((None, self._model.now + 9 * HOUR))),
            )
            if self._dice.random() < 0.4
        }

    def report(self, sent: list[DispatchedJob]) -> Report:
        """Return a report on one of these dispatches."""
        # Recent ones more often than earlier ones.
        job = self._dice.choice(sent[-6:] if self._dice.random() < 0.8 else sent)
        token = forged_token(job.token) if self._dice.random() < 0.1 else job.token
        if self._dice.random() < 0.03:
            token = later(job.token)
        # Half of the other tokens belong to a forgotten dispatch, half are forged.
        is_proven = token == job.token or self._dice.random() < 0.5
        started = self._model.now - 5_000 if self._dice.random() < 0.8 else None
        kind = self._dice.choice(_KINDS)
        return Report(
            id=job.id,
            token=token,
            proof=self._model.report_keys[0].prove(job.id, token, REPORTS) if is_proven else "",
            kind=kind,
            attempt=job.attempt,
            worker=self._dice.choice(("w1", "w2")),
            started=started,
            ran=self._dice.randrange(1_000),
            delay=self._dice.choice((0, HOUR)),
            result=b"1" if kind == "succeeded" else b"",
            error=None if kind not in _FAILING else error("no", self._dice.choice(("A", SUSPENDED, MISMATCH))),
        )
