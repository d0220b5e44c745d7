"""Submissions in callers' own SQLAlchemy transactions, for a store in memory.

submit    runs in a store transaction that is rolled back, after the earlier submissions of the caller's transaction:
          it sees its own jobs and what others committed
commit    repeats the submissions in a transaction that is committed
rollback  forgets the submissions since the beginning, or since the savepoint
"""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from taskmq.errors import UnsupportedFeature
from taskmq_embedded.memory import MemoryThread
from taskmq_sql.sqlite.file.transaction import Transaction

T = TypeVar("T")

_Work = Callable[[Transaction], object]

# SQLAlchemy's events of transactions, on sessions and on connections.
_SESSION: Final = ("after_commit", "after_soft_rollback", "after_transaction_create", "after_transaction_end")
_KINDS: Final = {"postgresql": "asynchronous", "sqlite": "synchronous"}
_CONNECTION: Final = ("commit", "rollback", "savepoint", "release_savepoint", "rollback_savepoint")


class _Undone(Exception):
    """Raised to roll a transaction back and return an answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


class CallerTransactions:
    """The callers' transactions of one store.

    Args:
        thread: runs the store's work.
        of: scheme of the store that this one replaces; connections which that store rejects are rejected here.
    """

    def __init__(self, thread: MemoryThread[Transaction], *, of: str = "") -> None:
        self._thread = thread
        self._store = of
        self._open: WeakKeyDictionary[Any, _Submissions] = WeakKeyDictionary()

    def write(self, connection: Any, write: Callable[[Transaction], T]) -> T:
        """Write once the transaction of this session or connection commits; begin one if none is open.

        Raises:
            UnsupportedFeature: the connection does not announce its commits.
        """
        subject = self._subject(connection)
        if not subject.in_transaction():
            subject.begin()
        submissions = self._of(subject)
        answer = self._attempt(submissions, write)
        submissions.works.append(write)
        return answer

    def read(self, connection: Any, read: Callable[[Transaction], T]) -> T:
        """Read what the caller's transaction sees.

        Raises:
            UnsupportedFeature: as in `write`.
        """
        return self._attempt(self._of(self._subject(connection)), read)

    def _subject(self, connection: Any) -> Any:
        """Return the synchronous session or connection below an asynchronous one; it has the commit events."""
        subject = getattr(connection, "sync_session", getattr(connection, "sync_connection", connection))
        kinds = (("sqlalchemy.orm", "Session"), ("sqlalchemy.engine", "Connection"))
        known = tuple(getattr(sys.modules[module], name) for module, name in kinds if module in sys.modules)
        if not isinstance(subject, known):
            raise UnsupportedFeature(
                f"connection={type(connection).__name__} is not supported: in tests, jobs in memory follow the "
                "transaction of a SQLAlchemy session or connection; others do not announce their commits"
            )
        if (wanted := _KINDS.get(self._store)) not in (
            None,
            "synchronous" if subject is connection else "asynchronous",
        ):
            raise UnsupportedFeature(
                f"connection={type(connection).__name__} is not supported: the app's store is {self._store}://, "
                f"which accepts only {wanted} sessions and connections, and so does its replacement in tests"
            )
        return subject

    def _of(self, subject: Any) -> "_Submissions":
        if (found := self._open.get(subject)) is None:
            found = self._open[subject] = _Submissions(self._commit)
            found.follow(subject)
        return found

    def _attempt(self, submissions: "_Submissions", work: Callable[[Transaction], T]) -> T:
        """Run the work as the caller's transaction sees the jobs, and roll it back."""

        def attempt(transaction: Transaction) -> T:
            for each in submissions.works:
                each(transaction)
            raise _Undone(work(transaction))

        try:
            return self._thread.ask(attempt)
        except _Undone as undone:
            answer: T = undone.answer
            return answer

    def _commit(self, works: list[_Work]) -> None:
        for work in works:
            self._thread.ask(work)


class _Submissions:
    """Submissions in an open transaction of a session or connection; it listens to the transaction's events.

    Attributes:
        works: in their order; each can be repeated.
    """

    def __init__(self, commit: Callable[[list[_Work]], None]) -> None:
        self.works: list[_Work] = []
        self._keep = commit
        # Number of works at the beginning of each savepoint. Sessions name the one that ends; on connections it is
        # the last one.
        self._began: dict[Any, int] = {}
        self._stack: list[int] = []

    def follow(self, subject: Any) -> None:
        """Listen to commits and rollbacks for the lifetime of the session or connection."""
        events = cast("Any", sys.modules["sqlalchemy.event"])
        for name in _SESSION if hasattr(subject, "get_bind") else _CONNECTION:
            events.listen(subject, name, getattr(self, name))

    def after_commit(self, session: Any) -> None:
        # Also called for savepoints; their submissions belong to the outer transaction, which commits later.
        if not session.in_nested_transaction():
            self.commit(session)

    def after_transaction_create(self, session: Any, transaction: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self._began[transaction] = len(self.works)

    def after_soft_rollback(self, session: Any, transaction: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        # A transaction that began before the first submission undoes them all. The event may come twice.
        del self.works[self._began.get(transaction, 0) :]

    def after_transaction_end(self, session: Any, transaction: Any) -> None:
        if transaction.parent is None:
            # Closed without a commit.
            self.rollback(session)

    def commit(self, subject: Any) -> None:
        works = list(self.works)
        self.rollback(subject)
        self._keep(works)

    def rollback(self, subject: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self.works.clear()
        self._began.clear()
        self._stack.clear()

    def savepoint(self, connection: Any, name: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        self._stack.append(len(self.works))

    def release_savepoint(self, connection: Any, name: Any, context: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        del self._stack[-1:]

    def rollback_savepoint(self, connection: Any, name: Any, context: Any) -> None:  # noqa: ARG002 - SQLAlchemy's
        del self.works[self._stack.pop() if self._stack else 0 :]
