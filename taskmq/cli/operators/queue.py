"""`taskmq queue`."""

import asyncio
from typing import Annotated

from cyclopts import App, Parameter

from taskmq.cli.exits import FAILED
from taskmq.cli.globals import open_app
from taskmq.cli.output import confirm, note, print_rows
from taskmq.contracts.broker import QueueStats
from taskmq.operations import queues as operations

__all__ = ["app"]

app = App(name="queue", help="Queues: list, purge.", result_action="return_value")

_COLUMNS = ("queue", "ready", "unsettled", "delayed", "consumers")


@app.command(name="list")
def list_queues(*, queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None) -> None:
    """List the queues of the app (--app) or those named.

    Parameters
    ----------
    queues
        Queues, separated by commas.
    """
    target = open_app()
    names = [name.strip() for name in queues.split(",")] if queues else []

    async def run() -> list[QueueStats]:
        async with target:
            return await operations.list_queues(target, names)

    stats = asyncio.run(run())
    print_rows(_COLUMNS, [{column: getattr(entry, column) for column in _COLUMNS} for entry in stats])


@app.command
def purge(queue: str, /, *, yes: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Delete the waiting messages of a queue, in all its priority classes or shards.

    Parameters
    ----------
    queue
        The queue, as people name it.
    yes
        Do not ask.
    """
    target = open_app()
    if not confirm(f"Delete all waiting messages of {queue!r}?", yes=yes):
        return FAILED

    async def run() -> int:
        async with target:
            return await operations.purge_queue(target, queue)

    note(f"{asyncio.run(run())} messages deleted")
    return 0
