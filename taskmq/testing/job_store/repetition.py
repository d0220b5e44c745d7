"""Jobs of a `JobModel` that have ended and are repeated by others."""

from msgspec.structs import replace

from taskmq.contracts.jobs import JobUpdate, NewJob, Submitted
from taskmq.model.states import TERMINAL
from taskmq.testing.job_store.model import JobModel

__all__ = ["retry"]


def retry(model: JobModel, job: NewJob, update: JobUpdate) -> Submitted | None:
    """Carry out `JobStore.retry`."""
    ended = model.jobs.get(update.id)
    if ended is None or (ended.state, ended.version) != (update.before, update.version):
        return None
    if ended.state not in TERMINAL:
        return None
    (answer,) = model.submit([job])
    if answer.is_new:
        marked = replace(ended, version=ended.version + 1, retried_as=job.id)
        model.jobs[ended.id] = marked
        model.note(marked, update.kind, by=update.by, note=update.note)
        if update.audit is not None:
            model.identity.note(model.now, [update.audit])
    return answer
