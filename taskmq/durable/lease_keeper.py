"""Renewal of a process's leases.

    watch -> a third of the lease later: renew -> and again, for as long as any lease is held
                                           | StateUnavailable: logged once, tried again after a thirtieth of the lease

A keeper renews all leases of one kind together: a worker with a hundred runs makes one call, not a hundred. Between
two renewals there is a timer and no asyncio task, so a process that stops need not wait for it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from taskmq.errors import StateUnavailable

_log = logging.getLogger("taskmq")

_RENEWALS: Final = 3
_TRIES: Final = 10


class LeaseKeeper:
    """Renews the leases of one kind, of one process, on the loop of its first `watch`.

    Args:
        what: names the leases in log lines, in the plural: "keys of running jobs".
        seconds: duration of a lease without renewal.
        renew: renews all held leases, and returns whether any is still held. It reports lost leases itself. It may
            raise `StateUnavailable`.
    """

    def __init__(self, what: str, *, seconds: float, renew: Callable[[], Awaitable[bool]]) -> None:
        self._what = what
        self._pause = seconds / _RENEWALS
        self._renew = renew
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_hurried = False
        self._is_failing = False

    def watch(self) -> None:
        """Start renewing, because a lease is held from now on. Does nothing if others are."""
        if self._timer is None and self._renewing is None:
            self._wake(self._pause)

    def hurry(self) -> None:
        """Renew immediately, because something cannot wait."""
        if self._renewing is not None:
            self._is_hurried = True
        else:
            self._wake(0.0)

    async def aclose(self) -> None:
        """Stop renewing. When it returns, no renewal is in progress."""
        self._is_hurried = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (renewing := self._renewing) is not None:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((renewing,))
            self._renewing = None

    def _wake(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._renewing = asyncio.create_task(self._renew_once(), name=f"taskmq renews {self._what}")

    async def _renew_once(self) -> None:
        is_held = True
        try:
            is_held = await self._renew()
            self._is_failing = False
        except StateUnavailable as error:
            if not self._is_failing:
                _log.warning("renewing %s failed, will retry: %s", self._what, error)
            self._is_failing = True
        except Exception:  # noqa: BLE001 - without renewals, all that is held would pass on to others
            _log.critical("renewing %s failed", self._what, exc_info=True)
            self._is_failing = True
        self._renewing = None
        if self._is_hurried:
            self._is_hurried = False
            self._wake(0.0)
        elif is_held:
            self._wake(self._pause / _TRIES if self._is_failing else self._pause)
