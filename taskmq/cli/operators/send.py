"""`taskmq send`."""

import asyncio
import os
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from taskmq.cli.globals import open_app
from taskmq.cli.output import print_record
from taskmq.contracts.broker import Outgoing
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.envelope import VERSION, Envelope, check_task_name, encode_envelope, new_job_id
from taskmq.model.topology import check_order_key
from taskmq.model.units import parse_duration, to_ms

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
    wait: Annotated[bool, Parameter(negative="")] = False,
    timeout: str | None = None,
) -> int:
    """Send a task by name, without importing its module; prints the job's id.

    The queue must exist: a misspelt one is an error, not a new queue.

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
    wait
        Wait for the job to end and print its result; exit code 7 when it did not succeed.
    timeout
        How long --wait waits, such as 30s; then exit code 124.
    """
    app = open_app()
    if wait and app.sessions.state_url is None:
        # Found out only afterwards, the task would have been sent.
        raise UnsupportedFeature("--wait needs a state: --state redis://... or $TASKMQ_STATE")
    patience = None if timeout is None else parse_duration(timeout, what="timeout")
    known = app.tasks.get(task)
    work = app.producer.queue(queue or (known.queue if known else app.tasks.default_queue))
    if order_key is not None:
        check_order_key(order_key)
    now = app.sessions.clock.now_ms()
    envelope = Envelope(
        v=VERSION,
        id=new_job_id(now, os.urandom(10)),
        task=check_task_name(task),
        args=_json("--args", args, list),
        kwargs=_json("--kwargs", kwargs, dict),
        enqueued=now,
        eta=None if delay is None else now + to_ms(parse_duration(delay, what="delay")),
        order_key=order_key,
        priority=priority,
    )
    message = Outgoing(
        queue=work.place(priority=priority, order_key=order_key),
        body=encode_envelope(envelope),
        content_type="application/json",
        job_id=envelope.id,
        task=envelope.task,
        due=envelope.eta,
        enqueued=now,
        priority=work.native_priority(priority),
    )

    async def run() -> dict[str, Any]:
        async with app:
            await app.sessions.current().publish(message)
            record: dict[str, Any] = {"job": envelope.id, "task": task, "queue": message.queue}
            if wait:
                record["result"] = await app.job(envelope.id).aresult(patience)
            return record

    print_record(asyncio.run(run()))
    return 0


def _json(option: str, text: str, kind: type) -> msgspec.Raw:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidOption(f"{option} is no JSON: {error}") from None
    if not isinstance(value, kind):
        raise InvalidOption(f"{option} must be a JSON {'array' if kind is list else 'object'}")
    return msgspec.Raw(text.encode())
