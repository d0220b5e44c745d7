"""`taskmq send`."""

import asyncio
from typing import Annotated, Any, cast

from cyclopts import Parameter

from taskmq.cli.globals import open_app
from taskmq.cli.output import print_record
from taskmq.cli.typed_values import json_value
from taskmq.errors import UnsupportedFeature
from taskmq.model.units import parse_duration
from taskmq.operations.send import send_by_name
from taskmq.options.task_options import CallOptions

__all__ = ["send"]


def send(
    task: str,
    /,
    *,
    # Described here: in the docstring the formatter takes "args" for a heading.
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: str = "{}",
    delay: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    order_key: str | None = None,
    key: str | None = None,
    tenant: str | None = None,
    wait: Annotated[bool, Parameter(negative="")] = False,
    timeout: str | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Send a task by name, without importing its module; prints the job's id.

    The queue must exist: a misspelt one is an error, not a new queue. Where the app is known (--app), it must have
    the task, and the task must take the arguments.

    Parameters
    ----------
    task
        The task's registered name.
    kwargs
        Named arguments, a JSON object.
    delay
        Run not before this long from now, such as 10m.
    queue
        Default: the task's own with --app, else "default".
    priority
        0 (lowest) to 9 (highest).
    order_key
        For ordered queues, which have to be known from --app: jobs of one key run in the order of sending.
    key
        Idempotency key: jobs of one key have their effect once.
    tenant
        Whose job it is.
    wait
        Wait for the job to end and print its result; exit code 7 when it did not succeed.
    timeout
        How long --wait waits, such as 30s; then exit code 124.
    force
        Send a task that the app (--app) does not have.
    """
    app = open_app()
    if wait and app.sessions.state_url is None:
        # Found out only afterwards, the task would have been sent.
        raise UnsupportedFeature("--wait needs a state: --state redis://... or $TASKMQ_STATE")
    patience = None if timeout is None else parse_duration(timeout, what="timeout")
    given = {
        "delay": delay,
        "queue": queue,
        "priority": priority,
        "order_key": order_key,
        "idempotency_key": key,
        "tenant": tenant,
    }
    options = cast("CallOptions", {name: value for name, value in given.items() if value is not None})
    positional, named = json_value("--args", args, list), json_value("--kwargs", kwargs, dict)

    async def run() -> dict[str, Any]:
        async with app:
            sent = await send_by_name(app, task, args=positional, kwargs=named, force=force, **options)
            record: dict[str, Any] = {"job": sent.job.id, "task": task, "queue": sent.queue}
            if wait:
                record["result"] = await sent.job.aresult(patience)
            return record

    print_record(asyncio.run(run()))
    return 0
