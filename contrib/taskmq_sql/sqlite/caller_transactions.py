"""Submissions in transactions of SQLAlchemy that are the caller's own, for a store in memory.

submit    in a transaction of the store that is undone, after all that the caller's has submitted before: it sees its
          own jobs, and what others have committed
commit    the same in a transaction that is not undone
rollback  what was submitted since then, or since the savepoint, is forgotten
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from taskmq.contracts.jobs import NewJob, Submitted
from taskmq.errors import UnsupportedFeature
from taskmq_embedded.memory import MemoryThread
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.submissions import submit

__all__ = ["CallerTransactions"]

T = TypeVar("T")

# What a session, or a connection, of SQLAlchemy says of its transactions.
_SESSION: Final = ("after_commit", "after_soft_rollback", "after_transaction_create", "after_transaction_end")
_KINDS: Final = {"postgresql": "asynchronous", "sqlite": "synchronous"}
_CONNECTION: Final = ("commit", "rollback", "savepoint", "release_savepoint", "rollback_savepoint")


class _Undone(Exception):
    """Takes an answer out of a transaction, which is rolled back."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


class CallerTransactions:
    """The transactions of one store's callers.

    Args:
        thread: does the store's work.
        of: the scheme of the store that this one is in place of: what that one refuses is refused here.
    """

    def __init__(self, thread: MemoryThread[Transaction], *, of: str = "") -> None:
        self._thread = thread
        self._store = of
        self._open: WeakKeyDictionary[Any, _Submissions] = WeakKeyDictionary()

    def submit(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Keep the jobs once the transaction of this session or connection commits; begin one where there is none.

        Raises:
            UnsupportedFeature: it does not say when it commits.
        """
        subject = self._subject(connection)
        if not subject.in_transaction():
            subject.begin()
        submissions = self._of(subject)
        answers = self._attempt(submissions, partial(submit, jobs=jobs))
        submissions.batches.append(list(jobs))
        return answers

    def read(self, connection: Any, read: Callable[[Transaction], T]) -> T:
        """Read what the transaction sees.

        Raises:
            UnsupportedFeature: as `submit` does.
        """
        return self._attempt(self._of(self._subject(connection)), read)

    def _subject(self, connection: Any) -> Any:
        """Return the session or connection below an asynchronous one, which has the events of commits."""
        subject = getattr(connection, "sync_session", getattr(connection, "sync_connection", connection))
        kinds = (("sqlalchemy.orm", "Session"), ("sqlalchemy.engine", "Connection"))
        known = tuple(getattr(sys.modules[module], name) for module, name in kinds if module in sys.modules)
        if not isinstance(subject, known):
            raise UnsupportedFeature(
                f"connection={type(connection).__name__}: in a test, where jobs are kept in memory, they follow the "
                "transaction of a session or connection of SQLAlchemy; any other does not say when it commits"
            )
        if (wanted := _KINDS.get(self._store)) not in (
            None,
            "synchronous" if subject is connection else "asynchronous",
        ):
            raise UnsupportedFeature(
                f"connection={type(connection).__name__}: the app's store is one of {self._store}://, which takes "
                f"{wanted} sessions and connections only, and so does the one of its tests"
            )
        return subject

    def _of(self, subject: Any) -> "_Submissions":
        if (found := self._open.get(subject)) is None:
            found = self._open[subject] = _Submissions(self._commit)
            found.follow(subject)
        return found

    def _attempt(self, submissions: "_Submissions", work: Callable[[Transaction], T]) -> T:
        """Do the work as the caller's transaction sees the jobs, and undo it."""

        def attempt(transaction: Transaction) -> T:
            for jobs in submissions.batches:
                submit(transaction, jobs)
            raise _Undone(work(transaction))

        try:
            return self._thread.ask(attempt)
        except _Undone as undone:
            answer: T = undone.answer
            return answer

    def _commit(self, batches: list[list[NewJob]]) -> None:
        for jobs in batches:
            self._thread.ask(partial(submit, jobs=jobs))


class _Submissions:
    """The jobs that an open transaction of a session or connection has submitted; its events come here.

    Attributes:
        batches: in their order.
    """

    def __init__(self, commit: Callable[[list[list[NewJob]]], None]) -> None:
        self.batches: list[list[NewJob]] = []
        self._keep = commit
        # How many batches there were when each savepoint began: a session says which one ends, a connection ends the
        # last one.
        self._began: dict[Any, int] = {}
        self._stack: list[int] = []

    def follow(self, subject: Any) -> None:
        """Hear of commits and rollbacks, for as long as the session or connection is there."""
        events = cast("Any", sys.modules["sqlalchemy.event"])
        for name in _SESSION if hasattr(subject, "get_bind") else _CONNECTION:
            events.listen(subject, name, getattr(self, name))

    def after_commit(self, session: Any) -> None:
        # Of a savepoint, too; what was submitted since it began is a part of what commits later.
        if not session.in_nested_transaction():
            self.commit(session)

    def after_transaction_create(self, session: Any, transaction: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self._began[transaction] = len(self.batches)

    def after_soft_rollback(self, session: Any, transaction: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        # One that began before the first submission undoes all of them. It may be said twice.
        del self.batches[self._began.get(transaction, 0) :]

    def after_transaction_end(self, session: Any, transaction: Any) -> None:
        if transaction.parent is None:
            # It was closed without a commit.
            self.rollback(session)

    def commit(self, subject: Any) -> None:
        batches = list(self.batches)
        self.rollback(subject)
        self._keep(batches)

    def rollback(self, subject: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self.batches.clear()
        self._began.clear()
        self._stack.clear()

    def savepoint(self, connection: Any, name: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self._stack.append(len(self.batches))

    def release_savepoint(self, connection: Any, name: Any, context: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        del self._stack[-1:]

    def rollback_savepoint(self, connection: Any, name: Any, context: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        del self.batches[self._stack.pop() if self._stack else 0 :]
