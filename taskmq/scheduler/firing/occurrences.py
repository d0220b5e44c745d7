"""Jobs of occurrences."""

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import NewJob
from taskmq.errors import TooLarge
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.keys import tenant_key
from taskmq.schedules.definition import StoredRule
from taskmq.schedules.occurrence import occurrence_envelope
from taskmq.schedules.record import OccurrenceClaim
from taskmq.stored_jobs.new_jobs import new_job


def job_of(
    app: TaskMQ, rule: StoredRule, call: Envelope, claim: OccurrenceClaim, *, occurrence: str, keyed: bool, now: int
) -> NewJob:
    """Build the job of one occurrence, with an id derived from the occurrence.

    Args:
        call: call of the rule.
        occurrence: id of the occurrence.
        keyed: whether a beat may have sent it before, so that workers need the id as idempotency key.
        now: ms since the epoch.

    Raises:
        TooLarge: the job exceeds the broker's message size.
        InvalidOption: the store cannot store the job.
    """
    envelope = occurrence_envelope(
        call, rule, claim, job_id=tenant_key(call.tenant, occurrence), now=now, key=occurrence if keyed else None
    )
    sending = Sending(envelope, rule.queue, JSON, submission=Submission(job_id=occurrence, detail=rule.detail))
    with app.producer.send_context(sending):
        task = app.tasks.get(envelope.task)
        job = new_job(
            sending,
            app.producer.queue(sending.queue),
            now=now,
            resources=None if task is None else task.plan.resources,
        )
    limit = app.sessions.current().broker.max_message_bytes
    if len(job.body) > limit:
        raise TooLarge(len(job.body), limit, f"job {job.key} of task {job.task}")
    return job
