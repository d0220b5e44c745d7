"""Quotas of the jobs of steps, within the transaction that submits the jobs.

Rows of usage are locked without waiting for submissions that hold them or have just added them; steps whose rows are
locked wait. So no submitter keeps a scheduler from advancing the runs of other tenants, and no transaction waits for
usage while it has locked other usage.
"""

from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import astuple

from taskmq.contracts.jobs import MakeJob, NewJob, counted_facts
from taskmq.errors import QuotaExceeded, TaskMQError
from taskmq.model.jobs.quotas import QuotaBook, QuotaExcess, Quotas, QuotaUsage, queued_limits, usage_names
from taskmq.model.runs.records import QuotaWait, RunRecord, StepJob
from taskmq_sql.steps import LIMIT_WAITS, QUEUED, Query, Steps, ask, insert

_LOCK: Final = """
select name, day, jobs, bytes, used_until from taskmq.quota_usage
where name = any($1::text[]) for update skip locked"""
_FIND: Final = "select name from taskmq.quota_usage where name = any($1::text[])"
_ADD: Final = """
insert into taskmq.quota_usage (name, day, jobs, bytes, used_until) @rows(text, int, bigint, bigint, float8)
on conflict (name) do nothing"""
_WRITE: Final = """
insert into taskmq.quota_usage (name, day, jobs, bytes, used_until) @rows(text, int, bigint, bigint, float8)
on conflict (name) do update set
  day = excluded.day, jobs = excluded.jobs, bytes = excluded.bytes, used_until = excluded.used_until"""

# Longest pause of a step while another transaction has locked the usage of its quota, ms.
_LONGEST_PAUSE: Final = 1_000


class MissingUsage(Exception):
    """Raised within a transaction when usage has no rows yet. Another one has to add them: it holds no lock."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(*names)
        self.names: Collection[str] = names


class StepQuotas:
    """Jobs of steps in one transaction, as far as their quotas have room.

    Args:
        now: ms since the epoch by the store's clock.
        busy: names of usage that open submissions have added.
    """

    def __init__(self, quotas: Quotas, make_job: MakeJob, *, now: int, busy: Collection[str] = ()) -> None:
        self._quotas = quotas
        self._make_job = make_job
        self._now = now
        self._made: dict[str, NewJob] = {}
        self._usage: dict[str, QuotaUsage] = {}
        # Usage that other transactions have locked.
        self._busy = set(busy)
        self._books: dict[str, QuotaBook] = {}

    @property
    def are_set(self) -> bool:
        """Whether there are quotas."""
        return bool(self._quotas.quotas)

    def make(self, run: RunRecord, job: StepJob) -> NewJob:
        """Return the job of a step, which `admit` may have built.

        Raises:
            TaskMQError: the step cannot have a job.
        """
        return self._made.get(job.id) or self._make_job(run, job)

    def admit(self, run: RunRecord, job: StepJob, pause: int) -> Steps[QuotaWait | None]:
        """Count a job in its quotas; if one has no room, return how the step waits for it.

        Args:
            pause: after how long the step asks again, ms.

        Raises:
            MissingUsage: `add_usage` has to add rows first.
        """
        try:
            new = self._made[job.id] = self._make_job(run, job)
        except TaskMQError:
            # Its submission fails with it.
            return None
        facts = counted_facts(new, now=self._now)
        names = usage_names(self._quotas, [(facts["tenant"], facts["user"])])
        if not (yield from self._lock(names)):
            at = self._now + min(pause, _LONGEST_PAUSE)
            return QuotaWait(f"other jobs of tenant {new.tenant!r} are being counted", at)
        if not names:
            return None
        book = yield from self._book(new.tenant)
        if (excess := book.admit(**facts)) is None:
            return None
        return QuotaWait(_describe(new, excess), book.postpone(excess, size=facts["size"], pause=pause))

    def take_back(self, job: NewJob) -> None:
        """Uncount an admitted job that was not created."""
        if (book := self._books.get(job.tenant)) is not None:
            book.take_back(**counted_facts(job, now=self._now))

    def write(self) -> Query:
        """Write the usage of the admitted jobs."""
        changed = [each for book in self._books.values() for each in book.changed.items()]
        return Query(_WRITE, tuple((name, *astuple(usage)) for name, usage in changed))

    def _lock(self, names: Collection[str]) -> Steps[bool]:
        """Lock rows of usage; return whether all of them are locked."""
        if wanted := [name for name in names if name not in self._usage and name not in self._busy]:
            for name, *usage in (yield from ask(_LOCK, wanted)):
                self._usage[name] = QuotaUsage(*usage)
        if busy := [name for name in wanted if name not in self._usage]:
            found = {row[0] for row in (yield from ask(_FIND, busy))}
            if len(found) < len(busy):
                raise MissingUsage(sorted(set(busy) - found))
            self._busy |= found
        return self._busy.isdisjoint(names)

    def _book(self, tenant: str) -> Steps[QuotaBook]:
        if tenant not in self._books:
            queued: dict[str, int] = {}
            for name, limit in queued_limits(self._quotas, [tenant]).items():
                ((queued[name],),) = yield Query(QUEUED, (name, limit))
            self._books[tenant] = QuotaBook(self._quotas, usage=self._usage, queued=queued, now=self._now)
        return self._books[tenant]


def add_usage(names: Iterable[str]) -> Steps[None]:
    """Add rows for usage that has none.

    Raises:
        StoreUnavailable: an open transaction has added one of them.
    """
    yield LIMIT_WAITS
    yield from insert(_ADD, [(name, 0, 0, 0, 0.0) for name in sorted(names)])


def _describe(job: NewJob, excess: QuotaExcess) -> str:
    """Return a text about the exhausted quota."""
    return QuotaExceeded(
        job.task, tenant=excess.tenant, user=excess.user, limit=excess.limit, most=excess.most, retry_after=None
    ).quota
