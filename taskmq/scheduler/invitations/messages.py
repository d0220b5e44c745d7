"""Messages of dispatched jobs: one invitation, or a parcel of several."""

import itertools
from collections.abc import Callable, Sequence

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import DispatchedJob
from taskmq.model.envelope import JSON, Invitation, submitted_at
from taskmq.model.headers import labels_of
from taskmq.model.history.journals import SavedValues
from taskmq.model.jobs.reports import encode_parcel, invite
from taskmq.model.topology import jobs_queue, node_queue, parcels_queue
from taskmq.scheduler.gates import start_of
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.stored_jobs.new_jobs import name_of


class InvitationMessages:
    """Builder of one partition's messages.

    Args:
        proofs: makes the proofs of its dispatches.
        reports: name of the queue for the reports of its jobs.
        leaves_limits: whether workers leave the limits of a task to the store.
    """

    def __init__(self, proofs: InvitationProofs, reports: str, *, leaves_limits: Callable[[str], bool]) -> None:
        self._proofs = proofs
        self._reports = reports
        self._leaves_limits = leaves_limits
        self._parcels = itertools.count(1)

    def invite(self, job: DispatchedJob, saved: SavedValues | None) -> Outgoing:
        """Build the message of one job.

        Args:
            saved: values that earlier runs saved.
        """
        return Outgoing(
            queue=jobs_queue(target_queue(job)),
            body=self._body(job, saved),
            content_type=JSON,
            job_id=name_of(job),
            task=job.task,
            enqueued=submitted_at(job.id),
            headers=labels_of(job.tenant, job.priority, job.owner),
        )

    def pack(self, jobs: Sequence[DispatchedJob], *, batch: int) -> Outgoing:
        """Build the message of several jobs of one task; `batch` is for people."""
        first = jobs[0]
        return Outgoing(
            queue=parcels_queue(first.queue),
            body=encode_parcel(map(self._body, jobs)),
            content_type=JSON,
            job_id=f"{batch}/{next(self._parcels)}",
            task=first.task,
            enqueued=submitted_at(first.id),
        )

    def _body(self, job: DispatchedJob, saved: SavedValues | None = None) -> bytes:
        window = start_of(job)
        invitation = Invitation(
            id=job.id,
            token=job.token,
            reports=self._reports,
            proof=self._proofs.prove(job.id, job.token, self._reports),
            outages=job.outages,
            crashes=job.crashes,
            due=job.due,
            not_before=window.not_before,
            not_after=window.not_after,
            fence=job.fence,
            leaves_limits=job.fence is not None and self._leaves_limits(job.task),
        )
        return invite(job.body, attempt=job.attempt, invitation=invitation, saved=saved)


def target_queue(job: DispatchedJob) -> str:
    """Return the queue of the job's message: its own, or that of its node."""
    return node_queue(job.node) if job.node else job.queue
