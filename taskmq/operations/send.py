"""Sends a task by its name, without its code."""

from typing import Any, NamedTuple, Unpack

from msgspec import Raw

from taskmq.app import TaskMQ
from taskmq.errors import UnknownTask
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, check_task_name
from taskmq.model.units import did_you_mean
from taskmq.options.task_options import CallOptions, CallPlan, plan_call
from taskmq.tasks.envelope import envelope_of
from taskmq.tasks.task import Call

__all__ = ["SentCall", "send_by_name"]


class SentCall(NamedTuple):
    """What became of it: the job, and the queue at the broker that it waits in."""

    job: Job[Any]
    queue: str


async def send_by_name(
    app: TaskMQ, task: str, *, args: Raw, kwargs: Raw, force: bool = False, **options: Unpack[CallOptions]
) -> SentCall:
    """Send one call through the app's producer; returns when the broker has confirmed it.

    Where the app has a task of that name, the call has that task's options, keys and types, as `task.send` gives it.
    An app without tasks knows nothing of them: the call has what is given here and the defaults of the app. The queue
    has to exist in either case: a typed name is not checked otherwise.

    Args:
        args: a JSON array.
        kwargs: a JSON object.
        force: send a task that the app does not have, although it has others.

    Raises:
        UnknownTask: the app has tasks, and none of that name.
        InvalidArguments: the task does not take them; nothing was sent.
        InvalidOption: no task can have the name, or an option is not possible.
        SendError: one of its kinds; `Unroutable` where the queue does not exist.
    """
    if app.tasks.get(check_task_name(task)) is not None:
        call, positional, named = _known_call(app, task, args, kwargs, options)
        sending = call.sending(*positional, **named)
    elif app.tasks and not force:
        raise UnknownTask(
            f"the app has no task {task!r}: {did_you_mean(task, sorted(app.tasks))} (--force sends it all the same)"
        )
    else:
        plan = plan_call(CallPlan(queue=app.tasks.default_queue), options, task=task)
        now = app.sessions.clock.now_ms()
        envelope = envelope_of(plan, task, args, kwargs, plan.idempotency_key, plan.order_key, now)
        sending = Sending(envelope, plan.queue, JSON, dict(plan.headers) if plan.headers else {})
    await app.producer.send_async(sending, declares=False)
    envelope = sending.envelope
    place = app.producer.queue(sending.queue).place(priority=envelope.priority, order_key=envelope.order_key)
    return SentCall(app.job(envelope.id), place)


def _known_call(
    app: TaskMQ, task: str, args: Raw, kwargs: Raw, options: CallOptions
) -> tuple[Call[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A call of one of the app's tasks, by its name: with its options, and its arguments as the task takes them.

    Raises:
        UnknownTask: the app has none of that name.
        InvalidArguments: the task does not take them.
        InvalidOption: an option is not possible.
    """
    if (known := app.tasks.get(check_task_name(task))) is None:
        raise UnknownTask(f"the app has no task {task!r}: {did_you_mean(task, sorted(app.tasks))}")
    positional, named = known.signature.decode(args, kwargs, JSON)
    return known.options(**options), tuple(positional), named
