"""`taskmq dlq`."""

import asyncio
from typing import Annotated, Any

from cyclopts import App, Parameter

from taskmq.cli.exits import FAILED, NOT_FOUND
from taskmq.cli.globals import open_app
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.dead_letters import DeadLetter, browse, letter_queue, replay

__all__ = ["app"]

app = App(name="dlq", help="Dead letters: list, show, replay, purge.", result_action="return_value")

_COLUMNS = ("job", "task", "attempt", "reason", "error", "died")
_SEND_TIMEOUT = 30.0


@app.command(name="list")
def list_letters(queue: str, /, *, limit: int = 50) -> None:
    """List the oldest dead letters of a queue; they stay where they are.

    Parameters
    ----------
    queue
        The queue, as people name it; or taskmq.parking, taskmq.unroutable.
    limit
        How many at most.
    """
    letters = asyncio.run(_browse(queue, limit))
    print_rows(_COLUMNS, [_row(letter) for letter in letters])


@app.command
def show(queue: str, job: str, /, *, limit: int = 1000) -> int:
    """Show one dead letter with its message and traceback.

    Parameters
    ----------
    queue
        The queue, as people name it; or taskmq.parking, taskmq.unroutable.
    job
        The job's id.
    limit
        Among how many of the oldest letters to look.
    """
    letters = asyncio.run(_browse(queue, limit))
    found = next((letter for letter in letters if letter.job_id == job), None)
    if found is None:
        note(f"no dead letter of job {job} among the oldest {limit} of {queue!r}")
        return NOT_FOUND
    print_record(
        {
            **_row(found),
            "queue": found.queue,
            "worker": found.worker,
            "replayed": found.replayed,
            "body": found.body.decode(errors="replace"),
            "traceback": found.traceback,
        }
    )
    return 0


@app.command(name="replay")
def replay_letters(queue: str, /, *, job: str | None = None, task: str | None = None, limit: int = 10_000) -> int:
    """Send dead letters back to where they came from, from their first attempt on.

    Parameters
    ----------
    queue
        The queue, as people name it; or taskmq.parking, taskmq.unroutable.
    job
        Only the letter of this job.
    task
        Only letters of this task.
    limit
        How many letters to look at, at most.
    """
    target = open_app()

    def chosen(letter: DeadLetter) -> bool:
        return job in (None, letter.job_id) and task in (None, letter.task)

    async def run() -> int:
        async with target:
            broker = target.session().broker
            choose = chosen if job or task else None
            return await replay(broker, queue, limit=limit, timeout=_SEND_TIMEOUT, choose=choose)

    count = asyncio.run(run())
    note(f"{count} replayed")
    return NOT_FOUND if job and not count else 0


@app.command
def purge(queue: str, /, *, yes: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Delete the dead letters of a queue.

    Parameters
    ----------
    queue
        The queue, as people name it; or taskmq.parking, taskmq.unroutable.
    yes
        Do not ask.
    """
    target = open_app()
    if not confirm(f"Delete all dead letters of {queue!r}?", yes=yes):
        return FAILED

    async def run() -> int:
        async with target:
            return await target.session().broker.purge(letter_queue(queue))

    note(f"{asyncio.run(run())} dead letters deleted")
    return 0


async def _browse(queue: str, limit: int) -> list[DeadLetter]:
    target = open_app()
    async with target:
        return await browse(target.session().broker, queue, limit=limit)


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "job": letter.job_id,
        "task": letter.task,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "died": when(letter.died),
    }
