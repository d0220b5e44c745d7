"""Sending of tasks by name, without their code."""

from typing import Any, NamedTuple, Unpack

from msgspec import Raw

from taskmq.app import TaskMQ
from taskmq.errors import UnknownTask
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, check_task_name
from taskmq.model.units import did_you_mean
from taskmq.options.plans import CallPlan, plan_call
from taskmq.options.task_options import CallOptions
from taskmq.tasks.call import Call
from taskmq.tasks.envelope import envelope_of


class SentCall(NamedTuple):
    """The job that was sent, and the broker queue it waits in."""

    job: Job[Any]
    queue: str


async def send_by_name(
    app: TaskMQ, task: str, *, args: Raw, kwargs: Raw, force: bool = False, **options: Unpack[CallOptions]
) -> SentCall:
    """Send one call through the app's producer. Returns when the broker has confirmed it.

    If the app has a task of that name, the call gets that task's options, keys and types, as with `task.send`.
    Otherwise it gets only the given options and the app's defaults. The queue must already exist in both cases, which
    catches mistyped names.

    Args:
        args: a JSON array.
        kwargs: a JSON object.
        force: send the call although the app has tasks, but none of that name.

    Raises:
        UnknownTask: the app has tasks, but none of that name.
        InvalidArguments: the arguments do not match the task's signature; nothing was sent.
        InvalidOption: the name or an option is invalid.
        SendError: the call could not be sent; `Unroutable` if the queue does not exist.
    """
    if app.tasks.get(check_task_name(task)) is not None:
        call, positional, named = _build_call(app, task, args, kwargs, options)
        sending = call.sending(*positional, **named)
    elif app.tasks and not force:
        raise UnknownTask(
            f"the app has no task {task!r}: {did_you_mean(task, sorted(app.tasks))} (--force sends it anyway)"
        )
    else:
        plan = plan_call(CallPlan(queue=app.tasks.default_queue), options, task=task)
        now = app.sessions.clock.now_ms()
        envelope = envelope_of(plan, task, args, kwargs, plan.idempotency_key, plan.order_key, now)
        sending = Sending(envelope, plan.queue, JSON, dict(plan.headers) if plan.headers else {})
    await app.producer.send_async(sending, declares=False)
    envelope = sending.envelope
    queue = app.producer.queue(sending.queue).choose_physical(
        priority=envelope.priority, order_key=envelope.order_key
    )
    return SentCall(app.job(envelope.id), queue)


def _build_call(
    app: TaskMQ, task: str, args: Raw, kwargs: Raw, options: CallOptions
) -> tuple[Call[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Build a call of one of the app's tasks with its options, and decode its arguments.

    Raises:
        UnknownTask: the app has no task of that name.
        InvalidArguments: the arguments do not match the task's signature.
        InvalidOption: an option is invalid.
    """
    if (known := app.tasks.get(check_task_name(task))) is None:
        raise UnknownTask(f"the app has no task {task!r}: {did_you_mean(task, sorted(app.tasks))}")
    positional, named = known.signature.decode(args, kwargs, JSON)
    return known.options(**options), tuple(positional), named
