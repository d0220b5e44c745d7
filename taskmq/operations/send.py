"""A task sent by its name, by somebody who may not have its code."""

from typing import Any, NamedTuple, Unpack

from msgspec import Raw

from taskmq.app import TaskMQ
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, check_task_name
from taskmq.options.task_options import CallOptions, CallPlan, plan_call
from taskmq.tasks.task import envelope_of

__all__ = ["SentCall", "send_by_name"]


class SentCall(NamedTuple):
    """What became of it: the job, and the queue at the broker that it waits in."""

    job: Job[Any]
    queue: str


async def send_by_name(app: TaskMQ, task: str, *, args: Raw, kwargs: Raw, **options: Unpack[CallOptions]) -> SentCall:
    """Send one call through the app's producer; returns when the broker has confirmed it.

    Where the app has a task of that name, the call has that task's options, keys and types, as `task.send` gives it.
    Where it has none, the call has what is given here and the defaults of the app. The queue has to exist in either
    case: nobody checks a name that was typed.

    Args:
        args: a JSON array.
        kwargs: a JSON object.

    Raises:
        InvalidArguments: the task does not take them; nothing was sent.
        InvalidOption: no task can have the name, or an option is not possible.
        SendError: one of its kinds; `Unroutable` where the queue does not exist.
    """
    known = app.tasks.get(check_task_name(task))
    if known is not None:
        positional, named = known.signature.decode(args, kwargs, JSON)
        sending = known.options(**options).sending(*positional, **named)
    else:
        plan = plan_call(CallPlan(queue=app.tasks.default_queue), options, task=task)
        now = app.sessions.clock.now_ms()
        envelope = envelope_of(plan, task, args, kwargs, plan.idempotency_key, plan.order_key, now)
        sending = Sending(envelope, plan.queue, JSON, dict(plan.headers) if plan.headers else {})
    await app.producer.send_async(sending, declares=False)
    envelope = sending.envelope
    place = app.producer.queue(sending.queue).place(priority=envelope.priority, order_key=envelope.order_key)
    return SentCall(app.job(envelope.id), place)
