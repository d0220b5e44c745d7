"""Reports on jobs, compiled from the state, the dead letters and the workers."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.progress import JobProgress, progress_of
from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import AttemptRecord, JobRecord
from taskmq.contracts.stores import ResultRecord, Stores, WaitingMessage
from taskmq.errors import MalformedMessage, UnsupportedFeature
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.telemetry.app_versions import WorkerVersion, version_at
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue
from taskmq.model.units import Duration, to_datetime
from taskmq.operations.dead_letters import DeadLetter, LetterSelection, browse, list_queues_with_letters
from taskmq.operations.workers import list_workers
from taskmq.stored_jobs.new_jobs import name_of

_log = logging.getLogger("taskmq.jobs")

_PAGE = 1_000
_NAMED = 3


class JobLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter of the job.

    Attributes:
        queue: logical name of its queue; or `taskmq.parking`, `taskmq.unroutable`.
    """

    queue: str
    letter: DeadLetter


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Known facts about a job; None where unknown.

    Attributes:
        state: its state by `Job.state`, a worker or a dead letter; `unknown` if no part knows the job; None if it
            has ended and its outcome is no longer kept.
        queue: logical name of its queue.
        attempt: last known attempt; the next one if the job waits for its time.
        due: when a job that waits in the state is published.
        enqueued: when it was first published.
        worker: the worker that runs it, or ran it last.
        running_for: seconds since its run began, if a worker reports that it runs.
        error_type, error, traceback: error of a failed job; for a cancelled job `error` is the reason.
        cancelled: why it was cancelled, whether or not it has ended since.
        workflow: id of the workflow that it is a step of.
        has_value: whether a result can be read.
        letters: dead letters of the job, in all queues that were read.
        body: body of its message, if it waits in the state or is a dead letter.
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
        """Whether the broker or the state knows the job."""
        return self.state is not JobState.UNKNOWN or bool(self.letters) or self.cancelled is not None


async def report_job(app: TaskMQ, job_id: str, *, within: Duration = 1.0, depth: int | None = None) -> JobReport:
    """Collect what the state, the dead letters and the workers know about a job sent to the broker.

    The broker cannot look up a single job. A job that waits in a queue or in RabbitMQ's delay ladder is unknown,
    unless its task has reported progress before. A dead letter is gone once it was replayed.

    Args:
        within: how long to wait for the workers' answers.
        depth: read at most this many letters of each queue, the oldest.

    Raises:
        BrokerUnavailable, StateUnavailable: one of them could not be reached.
    """
    facts: dict[str, Any] = {}
    letters = await _find_letters(app, job_id, depth)
    for found in reversed(letters):
        facts |= _facts_of_letter(found)
    stores = app.sessions.current().stores
    state = JobState.FAILED if any(one.queue not in (PARKING, UNROUTABLE) for one in letters) else JobState.UNKNOWN
    if (progress := await _find_progress(stores, job_id)) is not None:
        facts |= {"progress": progress, "attempt": max(progress.attempt, facts.get("attempt") or 0)}
        state = progress.state if state is JobState.UNKNOWN else state
    if (waiting := None if stores.delays is None else await stores.delays.find(job_id)) is not None:
        facts |= _facts_of_delay(waiting)
        state = JobState.RETRYING if facts["attempt"] > 1 else JobState.SCHEDULED
    record = None if stores.results is None else await app.jobs.find_result(job_id)
    if record is not None:
        facts |= _facts_of_record(record)
        state = record.state
    is_expired = record is None and stores.results is not None and await stores.results.has_expired(job_id)
    facts["cancelled"] = await _find_cancellation(stores, job_id)
    if (running := await _find_run(app, job_id, within)) is not None:
        # A replayed job keeps the record of its failure until it ends again.
        facts |= running
        state = JobState.RUNNING
    is_over = is_expired and waiting is None and running is None and state is not JobState.FAILED
    return JobReport(id=job_id, state=None if is_over else state, letters=letters, **facts)


async def locate_missing_job(app: TaskMQ, job_id: str) -> str:
    """Return a sentence that says where an id missing from the store may be found; "" if unknown.

    The job may belong to a tenant whose prefix the id lacks. Or it was sent to the broker; then a dead letter or the
    state may know it.

    Raises:
        BrokerUnavailable, StateUnavailable, StoreUnavailable: one of them could not be reached.
    """
    if app.sessions.current().store is not None:
        page = await app.jobs.alist(JobFilter(keys=(job_id,)), limit=_NAMED)
        if names := " and ".join(repr(name_of(job)) for job in page.jobs):
            return f"there is {names}: give the full name, or --tenant"
    report = await report_job(app, job_id)
    if report.letters:
        queue = report.letters[0].queue
        return f"it is a dead letter at the broker: `taskmq dlq replay {queue} --job {job_id}` runs it again"
    if report.is_known:
        return f"it was sent to the broker: see `taskmq job show {job_id}`, and its worker's log"
    return ""


async def versions_of_attempts(app: TaskMQ, attempts: Sequence[AttemptRecord]) -> list[str]:
    """Return the version of the app that ran each attempt, as its worker announced it; "" if it is unknown.

    Raises:
        StoreUnavailable: the store could not be reached.
    """
    store = app.sessions.store()
    workers = sorted({one.worker for one in attempts if one.worker})
    reports: dict[str, list[WorkerVersion]] = defaultdict(list)
    if workers and isinstance(store, Remembering):
        for report in await store.history.versions.of_workers(workers):
            reports[report.worker].append(report)
    return [version_at(reports[one.worker], one.started) for one in attempts]


async def progress_of_jobs(app: TaskMQ, jobs: Iterable[JobRecord]) -> dict[str, JobProgress]:
    """Read the progress that the stored jobs' tasks have reported, by the store's ids."""
    found = await app.sessions.store().journals.progress([job.id for job in jobs])
    return {job_id: progress_of(record) for job_id, record in found.items()}


async def _find_letters(app: TaskMQ, job_id: str, depth: int | None) -> list[JobLetter]:
    broker = app.sessions.current().broker
    choose = LetterSelection(job=job_id).at(app.sessions.clock.now_ms())
    names = await list_queues_with_letters(broker, [queue.name for queue in app.tasks.queues])
    return [
        JobLetter(queue=name, letter=letter)
        for name in names
        for letter in await browse(broker, name, limit=_PAGE, choose=choose, depth=depth)
    ]


async def _find_progress(stores: Stores, job_id: str) -> JobProgress | None:
    record = None if stores.progress is None else await stores.progress.find(job_id)
    return None if record is None else progress_of(record)


async def _find_cancellation(stores: Stores, job_id: str) -> str | None:
    if stores.revocations is None:
        return None
    position = 0
    while page := await stores.revocations.since(position, limit=_PAGE):
        for one in page:
            if one.job_id == job_id:
                return one.reason
        position = page[-1].cursor
    return None


async def _find_run(app: TaskMQ, job_id: str, within: Duration) -> dict[str, Any] | None:
    try:
        answers = await list_workers(app, within=within)
    except UnsupportedFeature:
        # The broker has no broadcasts.
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


def _facts_of_letter(found: JobLetter) -> dict[str, Any]:
    letter = found.letter
    return {
        **_facts_of_message(letter.body, letter.content_type),
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


def _facts_of_delay(message: WaitingMessage) -> dict[str, Any]:
    return {
        "attempt": 1,
        **_facts_of_message(message.body, message.content_type),
        "task": message.task,
        "queue": logical_queue(message.queue),
        "due": _instant(message.due),
        "enqueued": _instant(message.enqueued),
    }


def _facts_of_message(body: bytes, content_type: str | None) -> dict[str, Any]:
    try:
        envelope: Envelope = decode_envelope(body, content_type)
    except MalformedMessage:
        return {"body": body}
    run = None if envelope.step_of is None else envelope.step_of.rpartition("/")[0]
    return {"body": body, "attempt": envelope.attempt, "workflow": run}


def _facts_of_record(record: ResultRecord) -> dict[str, Any]:
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
