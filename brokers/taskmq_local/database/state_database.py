"""Database access of the stores of a state, with its errors."""

import sqlite3
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from taskmq.errors import StateUnavailable
from taskmq_embedded.work import Care, FileFailure, Work

T = TypeVar("T")

Kind = Literal["messages", "delays", "results", "waiting", "broadcasts", "schedules"]
"""Kinds of wakeups."""


class StateDatabase(Protocol):
    """The database of one state, until the state is closed."""

    async def ask(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> T:
        """Call `function` with the connection in a transaction; return its answer.

        Raises:
            StateUnavailable: the state was closed, or the call failed.
        """
        ...

    def submit(self, work: Work[sqlite3.Connection]) -> None:
        """Run `work` in one of the next transactions.

        Raises:
            StateUnavailable: the state was closed.
        """
        ...

    def too_late(self, seconds: float) -> StateUnavailable:
        """Return the error for work that did not end in time."""
        ...

    def listen(self, kind: Kind, heard: Callable[[], None]) -> None:
        """Call `heard` on this loop after each wakeup of `kind`, until the state is closed."""
        ...


def unavailable(error: Exception) -> StateUnavailable:
    """Convert the error of a failed work for its caller."""
    is_certain = not isinstance(error, FileFailure) or error.is_certain
    return StateUnavailable(str(error), is_certain=is_certain)
