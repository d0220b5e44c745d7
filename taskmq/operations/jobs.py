"""One job, as the state, the dead letters and the workers know it. Nothing is guessed."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.progress import JobProgress, progress_of
from taskmq.contracts.jobs import JobRecord
from taskmq.contracts.stores import ResultRecord, Stores, WaitingMessage
from taskmq.errors import MalformedMessage, StateUnavailable, UnsupportedFeature
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue
from taskmq.model.units import Duration, to_datetime
from taskmq.operations.dead_letters import DeadLetter, LetterSelection, browse, queues_with_letters
from taskmq.operations.workers import list_workers
from taskmq.stored_jobs.new_jobs import name_of

__all__ = ["JobLetter", "JobReport", "look_elsewhere", "progress_of_jobs", "report_job"]

_log = logging.getLogger("taskmq.jobs")

_PAGE = 1_000
_NAMED = 3


class JobLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A letter of the job.

    Attributes:
        queue: whose dead letters it is among; or `taskmq.parking`, `taskmq.unroutable`.
    """

    queue: str
    letter: DeadLetter


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job. What is unknown is None.

    Attributes:
        state: as `Job.state` has it, or as a worker or a dead letter says; `unknown` where no part knows the job;
            None where it has ended, and how is not kept any more.
        queue: as people name it.
        attempt: the last one that is known of; of a job that waits for its time, the next.
        due: when a job that waits in the state goes to its queue.
        enqueued: when it was sent first.
        worker: that runs it, or ran it last.
        running_for: seconds since its run began, where a worker says that it runs.
        error_type, error, traceback: of a job that has failed; `error` of a cancelled one is the reason.
        cancelled: why it was cancelled, whether or not it has ended since.
        workflow: the workflow whose step it is.
        has_value: there is a result to be had.
        letters: of the job, in all queues that were looked at.
        body: its message, where it waits in the state or is a dead letter.
    """

    id: str
    state: JobState | None
    task: str | None = None
    queue: str | None = None
    attempt: int | None = None
    due: datetime | None = None
    enqueued: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    worker: str | None = None
    running_for: float | None = None
    error_type: str | None = None
    error: str | None = None
    traceback: str | None = None
    cancelled: str | None = None
    progress: JobProgress | None = None
    workflow: str | None = None
    has_value: bool = False
    letters: list[JobLetter] = []
    body: bytes | None = None

    @property
    def is_known(self) -> bool:
        """Whether broker or state knows the job."""
        return self.state is not JobState.UNKNOWN or bool(self.letters) or self.cancelled is not None


async def report_job(app: TaskMQ, job_id: str, *, within: Duration = 1.0, depth: int | None = None) -> JobReport:
    """Collect what the state, the dead letters and the answering workers know of a job sent to the broker.

    The broker cannot be asked for a single job: one that waits in a queue, or in RabbitMQ's delay ladder, is unknown
    unless its task has reported progress before. A letter of a dead job that has been replayed since is gone.

    Args:
        within: how long the workers have to answer.
        depth: look at no more than so many letters of each queue, the oldest.

    Raises:
        BrokerUnavailable, StateUnavailable: one of them could not be reached.
    """
    facts: dict[str, Any] = {}
    letters = await _letters(app, job_id, depth)
    for found in reversed(letters):
        facts |= _of_letter(found)
    stores = app.sessions.current().stores
    state = JobState.FAILED if any(one.queue not in (PARKING, UNROUTABLE) for one in letters) else JobState.UNKNOWN
    if (progress := await _progress(stores, job_id)) is not None:
        facts |= {"progress": progress, "attempt": max(progress.attempt, facts.get("attempt") or 0)}
        state = progress.state if state is JobState.UNKNOWN else state
    if (waiting := None if stores.delays is None else await stores.delays.find(job_id)) is not None:
        facts |= _of_waiting(waiting)
        state = JobState.RETRYING if facts["attempt"] > 1 else JobState.SCHEDULED
    record = None if stores.results is None else await app.jobs.find_result(job_id)
    if record is not None:
        facts |= _of_record(record)
        state = record.state
    is_expired = record is None and stores.results is not None and await stores.results.has_expired(job_id)
    facts["cancelled"] = await _cancellation(stores, job_id)
    if (running := await _running(app, job_id, within)) is not None:
        # A replayed job has the record of its failure until it ends anew.
        facts |= running
        state = JobState.RUNNING
    is_over = is_expired and waiting is None and running is None and state is not JobState.FAILED
    return JobReport(id=job_id, state=None if is_over else state, letters=letters, **facts)


async def look_elsewhere(app: TaskMQ, job_id: str) -> str:
    """Say where a job is that the store has none of by that name, as a sentence; "" where nothing is known.

    It may be a tenant's, whose mark the name lacks, or one that was sent: then a dead letter or the state knows it.

    Raises:
        BrokerUnavailable, StateUnavailable, StoreUnavailable: one of them could not be reached.
    """
    if app.sessions.current().store is not None:
        page = await app.jobs.alist(JobFilter(keys=(job_id,)), limit=_NAMED)
        if names := " and ".join(repr(name_of(job)) for job in page.jobs):
            return f"there is {names}: give the whole name, or --tenant"
    report = await report_job(app, job_id)
    if report.letters:
        queue = report.letters[0].queue
        return f"it was sent, and is a dead letter: `taskmq dlq replay {queue} --job {job_id}` runs it again"
    if report.is_known:
        return f"it was sent to the broker: see `taskmq job show {job_id}`, and its worker's log"
    return ""


async def progress_of_jobs(app: TaskMQ, jobs: Iterable[JobRecord]) -> dict[str, JobProgress]:
    """Read the progress that the jobs' tasks have reported, by the store's ids.

    Returns nothing if the app has no state or the state does not answer: lists of jobs are shown without it.
    """
    stores = app.sessions.current().stores
    begun = [job for job in jobs if job.first_started is not None or job.started is not None or job.attempt > 1]
    if stores.progress is None:
        return {}
    try:
        # A run reports under the name that its message carries.
        found = await asyncio.gather(*(_progress(stores, name_of(job)) for job in begun))
    except StateUnavailable as error:
        _log.debug("the progress of %d jobs is not shown: %s", len(begun), error)
        return {}
    return {job.id: one for job, one in zip(begun, found, strict=True) if one is not None}


async def _letters(app: TaskMQ, job_id: str, depth: int | None) -> list[JobLetter]:
    broker = app.sessions.current().broker
    choose = LetterSelection(job=job_id).at(app.sessions.clock.now_ms())
    names = await queues_with_letters(broker, [queue.name for queue in app.tasks.queues])
    return [
        JobLetter(queue=name, letter=letter)
        for name in names
        for letter in await browse(broker, name, limit=_PAGE, choose=choose, depth=depth)
    ]


async def _progress(stores: Stores, job_id: str) -> JobProgress | None:
    record = None if stores.progress is None else await stores.progress.find(job_id)
    return None if record is None else progress_of(record)


async def _cancellation(stores: Stores, job_id: str) -> str | None:
    if stores.revocations is None:
        return None
    place = 0
    while page := await stores.revocations.since(place, limit=_PAGE):
        for one in page:
            if one.job_id == job_id:
                return one.reason
        place = page[-1].place
    return None


async def _running(app: TaskMQ, job_id: str, within: Duration) -> dict[str, Any] | None:
    try:
        answers = await list_workers(app, within=within)
    except UnsupportedFeature:
        # A broker without broadcasts.
        return None
    for answer in answers:
        for job in answer.status.jobs:
            if job.job_id == job_id:
                return {
                    "task": job.task,
                    "queue": job.queue,
                    "attempt": job.attempt,
                    "worker": answer.worker,
                    "running_for": job.seconds,
                }
    return None


def _of_letter(found: JobLetter) -> dict[str, Any]:
    letter = found.letter
    return {
        **_of_message(letter.body, letter.content_type),
        "task": letter.task or None,
        "queue": logical_queue(letter.queue) if letter.queue else None,
        "attempt": letter.attempt or None,
        "enqueued": _instant(letter.enqueued),
        "started": _instant(letter.started),
        "finished": _instant(letter.died),
        "worker": letter.worker or None,
        "error_type": letter.error_type or None,
        "error": letter.error.removeprefix(f"{letter.error_type}: ") or None,
        "traceback": letter.traceback or None,
    }


def _of_waiting(message: WaitingMessage) -> dict[str, Any]:
    return {
        "attempt": 1,
        **_of_message(message.body, message.content_type),
        "task": message.task,
        "queue": logical_queue(message.queue),
        "due": _instant(message.due),
        "enqueued": _instant(message.enqueued),
    }


def _of_message(body: bytes, content_type: str | None) -> dict[str, Any]:
    try:
        envelope: Envelope = decode_envelope(body, content_type)
    except MalformedMessage:
        return {"body": body}
    flow = None if envelope.flow is None else envelope.flow.rpartition("/")[0]
    return {"body": body, "attempt": envelope.attempt, "workflow": flow}


def _of_record(record: ResultRecord) -> dict[str, Any]:
    error = record.error
    return {
        "task": record.task or None,
        "attempt": record.attempt,
        "started": _instant(record.started),
        "finished": _instant(record.finished),
        "worker": record.worker or None,
        "error_type": error.type_name if error else None,
        "error": error.message if error else None,
        "traceback": error.traceback or None if error else None,
        "has_value": record.state is JobState.SUCCEEDED,
    }


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else to_datetime(milliseconds)
