"""Counts of starts without an end, which identify tasks that crash their worker.

Only redelivered messages are counted, in the app's state (`StartStore`), so the first run of a job
costs nothing. An app without a state counts in one file per host, user and broker, which is created for the first
such message; across hosts only a shared state counts exactly. If the state does not answer, jobs run uncounted, and
the broker's delivery limit is the last resort.
"""

import asyncio
import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from taskmq.app import TaskMQ
from taskmq.client.plugins import open_state
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import StartStore, State
from taskmq.errors import StateUnavailable, TaskMQError

_log = logging.getLogger("taskmq.worker")

_PATIENCE: Final = 5.0
_REMEMBERED: Final = 86_400.0


class CrashCounter:
    """Counts of starts by this worker."""

    def __init__(self, app: TaskMQ) -> None:
        self._app = app
        self._own: State | None = None
        self._is_answering = True

    async def begin(self, job_id: str) -> int:
        """Count one more start; return the number of starts without an end, including this one.

        0: the state does not answer.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                count = await self._store().begin(job_id, ttl=_REMEMBERED)
        except (TaskMQError, OSError) as error:
            self._complain(error)
            return 0
        self._is_answering = True
        return count

    async def end(self, job_id: str) -> None:
        """Forget the starts of a job whose run ended."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store().end(job_id)
        except (TaskMQError, OSError) as error:
            self._complain(error)

    async def aclose(self) -> None:
        """Close the file that only this worker opened."""
        if self._own is not None:
            await self._own.aclose()

    def _store(self) -> StartStore:
        session = self._app.sessions.current()
        if (starts := session.stores.starts) is not None:
            return starts
        if self._own is None:
            folder = private_folder(session.broker.address)
            options = BrokerOptions(name=f"{self._app.name} starts", clock=self._app.sessions.clock)
            self._own = open_state(f"local://{folder}", options)
        return self._own.starts

    def _complain(self, error: Exception) -> None:
        if self._is_answering:
            _log.warning(
                "counting starts of jobs failed, so tasks that crash their workers are not stopped: %s", error
            )
        self._is_answering = False


def private_folder(address: str) -> Path:
    """Create a folder of this user and host for the broker at `address`; no other user can enter it.

    Raises:
        StateUnavailable: it cannot be created, or belongs to another user.
    """
    own = Path(tempfile.gettempdir()) / f"taskmq-{os.getuid()}"
    folder = own / hashlib.sha256(address.encode()).hexdigest()[:16]
    try:
        for path in (own, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
    except OSError as error:
        raise StateUnavailable(f"{folder} cannot be made: {error}") from error
    # Every user may write next to it: an existing folder may belong to any of them.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateUnavailable(f"{own} is not a folder that only this user can enter: remove it, or set TMPDIR")
    return folder
