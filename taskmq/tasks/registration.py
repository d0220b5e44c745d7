"""Describes tasks for processes that do not have their code."""

from typing import Any

from taskmq.errors import InvalidOption
from taskmq.model.jobs.call_schemas import registration_of
from taskmq.model.jobs.registrations import TaskFacts, TaskRegistration
from taskmq.tasks.task import Task
from taskmq.tasks.tasks import Tasks


def registrations_of(tasks: Tasks) -> list[TaskRegistration]:
    """Describe the tasks, by name; leaves out a task whose annotations cannot be resolved."""
    found: list[TaskRegistration] = []
    for name in sorted(tasks):
        try:
            found.append(registration_of_task(tasks[name]))
        except InvalidOption:
            # The worker that runs it reports the reason.
            continue
    return found


def registration_of_task(task: Task[..., Any]) -> TaskRegistration:
    """Describe a task, so that it can be called without its code.

    Raises:
        InvalidOption: its annotations cannot be resolved.
    """
    plan, call = task.plan, task.call_plan
    return registration_of(
        task.name,
        task.queue,
        task.signature.parameters,
        doc=task.__doc__,
        facts=TaskFacts(
            priority=call.priority,
            delay=call.delay,
            expires=call.expires,
            tenant=call.tenant,
            meta=call.meta or {},
            timeout=plan.timeout,
            max_attempts=1 if plan.retry is None else plan.retry.max_attempts,
            ack=plan.ack,
            needs_code=derived_keys(task),
        ),
    )


def derived_keys(task: Task[..., Any]) -> tuple[str, ...]:
    """Return the options of a task that derive a key from the arguments of a call."""
    makes_key = {
        "unique": task.plan.unique is not None,
        "idempotency_key": task.idempotency_key is not None,
        "order_key": task.order_key is not None,
    }
    return tuple(name for name, is_made in makes_key.items() if is_made)
