"""New jobs on their way into the store of the running loop's session."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from taskmq.client.session import Session
from taskmq.client.sessions import Sessions
from taskmq.contracts.jobs import Lane, NewJob, Submitted
from taskmq.errors import JobConflict, QuotaExceeded, StateUnavailable, StoreUnavailable, TooLarge
from taskmq.model.envelope import JSON
from taskmq.model.jobs.quotas import QuotaExcess
from taskmq.stored_jobs.dependencies import check_refusal
from taskmq.stored_jobs.new_jobs import name_of
from taskmq.stored_jobs.submission.group_commit import GroupCommit
from taskmq.stored_jobs.submission.lane_announcer import LaneAnnouncer


class _Entrance(NamedTuple):
    """Group commit and lane announcer of one session."""

    commit: GroupCommit
    lanes: LaneAnnouncer


class Submissions:
    """Submissions of jobs, in group commits, with their large arguments stored separately."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._by_session: WeakKeyDictionary[Session, _Entrance] = WeakKeyDictionary()

    async def submit(self, job: NewJob, *, connection: Any = None) -> Submitted:
        """Submit one job, in a group commit or in the caller's own transaction.

        The caller has to check whether another job has its unique key.

        Raises:
            JobConflict: its id belongs to another job.
            QuotaExceeded: a quota is exhausted.
            StoreUnavailable: the store could not be reached.
            TooLarge: the job exceeds the broker's message size.
        """
        job = await self.prepare(job)
        if connection is not None:
            (answer,) = await self._sessions.store().submit([job], connection=connection)
        else:
            answer = await self._entrance().commit.submit(job)
        check_refusal(answer, name_of(job))
        return require_accepted(job, answer)

    async def submit_all(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        """Submit many jobs. Returns their answers; the caller has to check for conflicts and duplicates."""
        if self._sessions.current().arguments is not None:
            jobs = [await self._replace_large_arguments(job) for job in jobs]
        self._check_sizes(jobs)
        if connection is not None:
            return await self._sessions.store().submit(jobs, connection=connection)
        return await self._entrance().commit.submit_many(jobs)

    async def prepare(self, job: NewJob) -> NewJob:
        """Return the job with large arguments replaced by a reference.

        Raises:
            TooLarge: it exceeds the broker's message size.
            StoreUnavailable: the arguments could not be stored.
        """
        job = await self._replace_large_arguments(job)
        self._check_sizes([job])
        return job

    def announce(self, jobs: Sequence[NewJob]) -> None:
        """Announce the lanes of jobs that are ready to the schedulers."""
        self._announce(self.lanes, jobs)

    def _announce(self, lanes: LaneAnnouncer, jobs: Sequence[NewJob]) -> None:
        lanes.add(self._lanes_of(jobs), jobs=len(jobs))

    def _lanes_of(self, jobs: Sequence[NewJob]) -> set[Lane]:
        now = self._sessions.clock.now_ms()
        lanes = {(job.queue, job.priority, job.tenant) for job in jobs if job.due <= now and not job.held}
        return {Lane(*lane) for lane in lanes}

    @property
    def lanes(self) -> LaneAnnouncer:
        """The announcer of lanes of the running loop's session."""
        return self._entrance().lanes

    async def _replace_large_arguments(self, job: NewJob) -> NewJob:
        """Return the job, with large arguments replaced by a reference."""
        body = await self.lighten(job.body, job_id=job.id, due=job.due)
        return job if body is job.body else msgspec.structs.replace(job, body=body)

    async def lighten(self, body: bytes, *, job_id: str, due: int) -> bytes:
        """Return the message of a job, with large arguments replaced by a reference.

        Raises:
            StoreUnavailable: the arguments could not be stored.
        """
        arguments = self._sessions.current().arguments
        if arguments is None or not arguments.may_be_large(body):
            return body
        try:
            return await arguments.lighten(body, JSON, job_id=job_id, due=due)
        except StateUnavailable as error:
            raise StoreUnavailable(f"nothing was changed: {error}") from error

    def _check_sizes(self, jobs: Sequence[NewJob]) -> None:
        limit = self._sessions.current().broker.max_message_bytes
        for job in jobs:
            if len(job.body) > limit:
                raise TooLarge(len(job.body), limit, f"job {job.key or job.id} of task {job.task}")

    def _entrance(self) -> _Entrance:
        """Return the group commit and announcer of the running loop's session."""
        session = self._sessions.current()
        found = self._by_session.get(session)
        if found is None:
            lanes = LaneAnnouncer(self._sessions.store(), session.announcer)
            session.before_close(lanes.announce)
            commit = GroupCommit(self._sessions.store(), on_commit=partial(self._announce, lanes))
            found = self._by_session[session] = _Entrance(commit, lanes)
        return found


def build_quota_error(task: str, excess: QuotaExcess) -> QuotaExceeded:
    """Build the error about an exhausted quota."""
    return QuotaExceeded(
        task,
        tenant=excess.tenant,
        user=excess.user,
        limit=excess.limit,
        most=excess.most,
        retry_after=None if excess.until is None else (excess.until - excess.now) / 1000,
    )


def require_accepted(job: NewJob, answer: Submitted) -> Submitted:
    """Return the answer if the store has accepted the job now or before, or another job has its unique key.

    Raises:
        QuotaExceeded: a quota is exhausted.
        JobConflict: another job has its id.
    """
    if answer.exceeded is not None:
        raise build_quota_error(job.task, answer.exceeded)
    if answer.is_same or answer.is_duplicate:
        return answer
    raise JobConflict(
        f"job {job.key!r} exists with different content, as job {answer.id} ({answer.state}): use another id",
        state=str(answer.state),
        version=answer.version,
    )
