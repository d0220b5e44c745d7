"""Short asyncio tasks with an owner: none outlives its owner, and none fails unseen.

They are for occasional pieces of work that no caller waits for. A part that lives as long as its owner is a
`Service`.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("taskmq")


class TaskSet:
    """The tasks of one owner.

    Args:
        name: name of the tasks, after `taskmq`.
        failure: log message for a task that raises.
    """

    def __init__(self, name: str, *, failure: str) -> None:
        self._name = f"taskmq {name}"
        self._failure = failure
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a piece of work as a task."""
        task = asyncio.create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    async def wait(self, seconds: float) -> None:
        """Wait at most this many seconds until nothing runs, including tasks that are started meanwhile."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._tasks and (left := end - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def aclose(self, *, grace: float = 0.0) -> None:
        """Give tasks this many seconds to end, as `wait` does, and cancel the rest. When it returns, nothing runs."""
        await self.wait(grace)
        while late := tuple(self._tasks):
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("%s", self._failure, exc_info=error)
