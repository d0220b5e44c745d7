"""The file of `local://`, as the stores of one state use it."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from taskmq.errors import StateUnavailable
from taskmq_embedded.work import Care, FileFailure, Work
from taskmq_local.database.database import Database
from taskmq_local.database.state_database import Kind, unavailable

T = TypeVar("T")


class FileDatabase:
    """A `taskmq_local.database.state_database.StateDatabase`.

    Args:
        check_open: raises if the state was closed.
        listen: see `StateDatabase.listen`.
    """

    def __init__(
        self,
        database: Database,
        *,
        check_open: Callable[[], None],
        listen: Callable[[Kind, Callable[[], None]], None],
    ) -> None:
        self._database = database
        self._listen = listen
        self._check_open = check_open

    async def ask(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> T:
        self._check_open()
        try:
            return await self._database.call(function, care=care, wakeups=wakeups)
        except FileFailure as error:
            raise unavailable(error) from error

    def submit(self, work: Work[sqlite3.Connection]) -> None:
        self._check_open()
        self._database.submit(work)

    def listen(self, kind: Kind, heard: Callable[[], None]) -> None:
        self._listen(kind, heard)

    def too_late(self, seconds: float) -> StateUnavailable:
        return StateUnavailable(f"no answer within {seconds:g} s: {self._database.trouble}", is_certain=False)
