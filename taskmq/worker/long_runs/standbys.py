"""Messages of long runs: the standby of a run under a lease, and copies of it."""

from taskmq.contracts.broker import Delivery, Outgoing
from taskmq.contracts.republish import copy_message
from taskmq.model import headers as header
from taskmq.model.envelope import amend
from taskmq.worker.attempt import Attempt


def standby_of(attempt: Attempt, delivery: Delivery, *, key: str, due: int) -> Outgoing:
    """Build the standby of a run.

    Args:
        key: of the lease.
        due: when the lease may expire, ms since the epoch.

    Raises:
        MalformedMessage: the message cannot be changed.
    """
    return copy_message(
        delivery,
        envelope=attempt.envelope,
        job_id=attempt.job_id,
        body=amend(delivery.body, delivery.content_type, {"id": attempt.job_id, "eta": due}),
        due=due,
        headers={header.LEASE: key},
        keeps=_keeps_all_but_the_lease,
    )


def put_off(attempt: Attempt, standby: Delivery, *, due: int) -> Outgoing:
    """Build a copy of a standby that arrives later; raises like `standby_of`."""
    return copy_message(
        standby,
        envelope=attempt.envelope,
        job_id=attempt.job_id,
        body=amend(standby.body, standby.content_type, {"eta": due}),
        due=due,
        keeps=_keeps_all,
    )


def copy_without_lease(attempt: Attempt, delivery: Delivery) -> Outgoing:
    """Build the message of a run that goes back to its queue; raises like `standby_of`."""
    return copy_message(
        delivery,
        envelope=attempt.envelope,
        job_id=attempt.job_id,
        body=amend(delivery.body, delivery.content_type, {"id": attempt.job_id}),
        keeps=_keeps_all_but_the_lease,
    )


def _keeps_all_but_the_lease(name: str) -> bool:
    return name != header.LEASE


def _keeps_all(name: str) -> bool:
    del name
    return True
