"""Copies of parts of the state in memory, because each delivery needs them."""

import asyncio
import logging
from abc import ABC, abstractmethod

from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable, StateUnavailable, TopologyMismatch

_log = logging.getLogger("taskmq.worker")


class StateCopy(ABC):
    """A copy that is read when the worker starts, periodically, and on `wake`: a `Service`.

    While the state does not answer, the copy stays as it is, and the worker goes on.

    Args:
        every: seconds between two reads of the state.
        trouble: logged, with the error, when the state stops answering.
    """

    def __init__(self, *, every: float, trouble: str) -> None:
        self._every = every
        self._trouble = trouble
        self._has_trouble = False
        self._waking = asyncio.Event()
        self._is_stopping = False

    def wake(self) -> None:
        """Read now, because something may have changed."""
        self._waking.set()

    async def load(self) -> None:
        """Read the state once; returns even if it does not answer."""
        try:
            await self._read()
        except (BrokerUnavailable, StateUnavailable, TopologyMismatch) as error:
            if not self._has_trouble:
                _log.warning("%s: %s", self._trouble, error)
            self._has_trouble = True
        else:
            self._has_trouble = False

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping = True
        self._waking.set()

    async def run(self) -> None:
        """Follow the state until `stop`."""
        while not self._is_stopping:
            await pause(self._waking, self._every)
            self._waking.clear()
            if not self._is_stopping:
                await self.load()
                await self._act()

    @abstractmethod
    async def _read(self) -> None:
        """Read the state, or announcements of it.

        Raises:
            BrokerUnavailable, StateUnavailable: it does not answer.
            TopologyMismatch: this user may not read announcements.
        """

    @abstractmethod
    async def _act(self) -> None:
        """Apply what was read; called after each read, even a failed one."""
