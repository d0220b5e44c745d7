"""`taskmq job`."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from cyclopts import App, Parameter

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import open_app
from taskmq.cli.output import note, print_rows, when
from taskmq.errors import InvalidOption
from taskmq.model.states import Cancellation

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.client.delayed import WaitingJob

__all__ = ["app"]

app = App(name="job", help="Single jobs: waiting, cancel, reschedule.", result_action="return_value")

T = TypeVar("T")

_CANCELLED: Final = {
    Cancellation.CANCELLED: "is cancelled: it waited for its time, and is gone",
    Cancellation.REQUESTED: "is cancelled: it is stopped where it runs, or ended where it comes up",
    Cancellation.ENDED: "has ended already",
    Cancellation.UNKNOWN: "is not known to the state; where it waits at the broker, or runs, it is ended even so",
}
_COLUMNS: Final = ("job", "task", "queue", "due", "enqueued")


@app.command
def waiting(*, task: str | None = None, queue: str | None = None, limit: int = 50) -> None:
    """List the jobs that wait for their time in the state (TaskMQ(delay="state")), the earliest due first.

    Parameters
    ----------
    task
        Only jobs of this task.
    queue
        Only jobs of this queue, as people name it.
    limit
        How many at most.
    """
    jobs = _run(lambda target: target.jobs.alist_waiting(limit=limit, task=task, queue=queue))
    print_rows(_COLUMNS, [_row(job) for job in jobs])


@app.command
def cancel(job: str, /, *, reason: str = "cancelled by an operator", remember: str = "7d") -> int:
    """Cancel a job that waits, is on its way or runs; who awaits its result is told.

    Ends with 3 where the job has ended already, and where the state knows nothing of it.

    Parameters
    ----------
    job
        The job's id.
    reason
        What those are told.
    remember
        How long workers end the job when they meet it, such as 7d.
    """
    cancellation = _run(lambda target: target.job(job).acancel(reason, remember=remember))
    note(f"job {job} {_CANCELLED[cancellation]}")
    return OK if cancellation else NOT_FOUND


@app.command
def reschedule(
    job: str,
    /,
    *,
    delay: str | None = None,
    eta: Annotated[str | None, Parameter(help="Run at this instant, such as 2027-01-31T09:00+01:00.")] = None,
) -> int:
    """Have a job that waits for its time in the state run at another time.

    Parameters
    ----------
    job
        The job's id.
    delay
        Run this long from now, such as 5m.
    """
    instant = None if eta is None else _instant(eta)
    is_done = _run(lambda target: target.job(job).areschedule(delay=delay, eta=instant))
    return _outcome(job, "rescheduled", is_done=is_done)


def _run(use: "Callable[[TaskMQ], Coroutine[Any, Any, T]]") -> T:
    target = open_app()

    async def run() -> T:
        async with target:
            return await use(target)

    return asyncio.run(run())


def _outcome(job: str, done: str, *, is_done: bool) -> int:
    if is_done:
        note(f"job {job} {done}")
        return OK
    note(f"job {job} does not wait in the state: it is on its way, has run, or waits at the broker")
    return NOT_FOUND


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"--eta {text!r} is no instant: it looks like 2027-01-31T09:00+01:00") from None


def _row(job: "WaitingJob") -> dict[str, Any]:
    return {
        "job": job.id,
        "task": job.task,
        "queue": job.queue,
        "due": when(_milliseconds(job.due)),
        "enqueued": when(_milliseconds(job.enqueued)),
    }


def _milliseconds(instant: datetime | None) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)
