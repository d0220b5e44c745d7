"""`taskmq send`."""

import asyncio
from typing import Annotated, Any, cast

from cyclopts import Parameter

from taskmq.cli.globals import open_app
from taskmq.cli.output import print_record
from taskmq.cli.typed_values import json_value, object_of
from taskmq.errors import UnsupportedFeature
from taskmq.model.units import parse_duration
from taskmq.operations.send import send_by_name
from taskmq.options.task_options import CallOptions, Guarantee


def send(
    task: str,
    /,
    *,
    # Described here: in the docstring the formatter would read "args" as a heading.
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: str = "{}",
    delay: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    order_key: str | None = None,
    key: str | None = None,
    tenant: str | None = None,
    run_timeout: str | None = None,
    max_attempts: int | None = None,
    retry: Annotated[
        str, Parameter(help='Pace of the retries as JSON: {"backoff": "constant", "base": "10s", "jitter": false}.')
    ] = "{}",
    guarantee: Guarantee | None = None,
    wait: Annotated[bool, Parameter(negative="")] = False,
    timeout: str | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Send a task by name without importing its module, and print the job's id.

    The queue must exist: a misspelled name is an error, not a new queue. With --app, the app must have the task, and
    the arguments must match it.

    Args:
        task: The task's registered name.
        kwargs: Named arguments, a JSON object.
        delay: Run no earlier than this long from now, such as 10m.
        queue: Default: with --app the task's own, else "default".
        priority: 0 (lowest) to 9 (highest).
        order_key: For ordered queues, which need --app: jobs with the same key run in the order they were sent.
        key: Idempotency key: jobs with the same key take effect once.
        tenant: The tenant that owns the job.
        run_timeout: Maximum duration of a run; at most the task's.
        max_attempts: Maximum of runs, including the first one.
        guarantee: at_most_once: run the job once or never, without retries.
        wait: Wait for the job to end and print its result. Exits with 7 if it did not succeed.
        timeout: How long --wait waits, such as 30s; then exits with 124.
        force: Send a task that the app (--app) does not have.
    """
    app = open_app()
    if wait and app.sessions.state_url is None:
        # Checked first: later, the task would already have been sent.
        raise UnsupportedFeature("--wait needs a state: pass --state redis://... or set $TASKMQ_STATE")
    patience = None if timeout is None else parse_duration(timeout, what="timeout")
    given = {
        "delay": delay,
        "queue": queue,
        "priority": priority,
        "order_key": order_key,
        "idempotency_key": key,
        "tenant": tenant,
        "timeout": run_timeout,
        "max_attempts": max_attempts,
        "retry": object_of("--retry", retry) or None,
        "guarantee": guarantee,
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
