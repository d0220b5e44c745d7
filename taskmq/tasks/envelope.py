"""The envelope of a call."""

from msgspec import Raw

from taskmq.model.envelope import VERSION, Envelope
from taskmq.model.keys import tenant_key
from taskmq.options.plans import CallPlan
from taskmq.run.context import current_context
from taskmq.tasks.job_ids import JOB_IDS


def envelope_of(  # noqa: PLR0917 - called for every message, and keywords cost
    plan: CallPlan,
    task: str,
    args: Raw,
    kwargs: Raw,
    key: str | None,
    order_key: str | None,
    now: int,
) -> Envelope:
    """Build the envelope of a call; a task that runs here becomes its parent.

    Args:
        key: the idempotency key.
        now: ms since the epoch.
    """
    parent = current_context.get()
    return Envelope(
        v=VERSION,
        id=tenant_key(plan.tenant, plan.job_id) if plan.job_id else JOB_IDS.next(now),
        task=task,
        args=args,
        kwargs=kwargs,
        enqueued=now,
        eta=plan.eta if plan.delay is None else now + plan.delay,
        expires=plan.expires_at if plan.expires is None else now + plan.expires,
        root=parent.root if parent else None,
        parent=parent.job_id if parent else None,
        key=key,
        order_key=order_key,
        tenant=plan.tenant,
        priority=plan.priority,
        meta=plan.meta,
        run=plan.run,
    )
