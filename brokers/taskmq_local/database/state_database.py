"""Database access of the stores of a `local://` state, with its errors."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from taskmq.errors import StateUnavailable
from taskmq_embedded.work import Care, FileFailure, Work
from taskmq_local.database.database import Database
from taskmq_local.database.wakeup import Kind

T = TypeVar("T")


class StateDatabase:
    """The database of one state, until the state is closed.

    Args:
        check_open: raises if the state was closed.
    """

    def __init__(self, database: Database, *, check_open: Callable[[], None]) -> None:
        self._database = database
        self._check_open = check_open

    async def ask(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> T:
        """Call `function` with the connection in a transaction; return its answer.

        Raises:
            StateUnavailable: the state was closed, or the call failed.
        """
        self._check_open()
        try:
            return await self._database.call(function, care=care, wakeups=wakeups)
        except FileFailure as error:
            raise unavailable(error) from error

    def submit(self, work: Work[sqlite3.Connection]) -> None:
        """Run `work` in one of the next transactions.

        Raises:
            StateUnavailable: the state was closed.
        """
        self._check_open()
        self._database.submit(work)

    def too_late(self, seconds: float) -> StateUnavailable:
        """Return the error for work that did not end in time."""
        return StateUnavailable(f"no answer within {seconds:g} s: {self._database.trouble}", is_certain=False)


def unavailable(error: Exception) -> StateUnavailable:
    """Convert the error of a failed work for its caller."""
    is_certain = not isinstance(error, FileFailure) or error.is_certain
    return StateUnavailable(str(error), is_certain=is_certain)
