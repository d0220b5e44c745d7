"""What one run writes down while it goes on: its progress, its heartbeat, and what it saves for later runs.

A journal is made when a task uses one of these for the first time; runs that use none have none. It writes to a
`JournalWriter`: the worker's, which has the connection to the state, or a child process's, which has a pipe to the
worker.

Progress and heartbeats are news: the last ones count, they are written now and then, and where the state cannot be
reached the task goes on without. What is saved is a promise: it is durable when `save` returns, else that raises.
"""

import asyncio
import typing
from collections.abc import Callable
from typing import Any, Final, Protocol

from taskmq.contracts.stores import BegunRun
from taskmq.errors import EncodeError, InvalidOption, TooLarge
from taskmq.model.codec import PLAIN, ReturnType
from taskmq.model.envelope import JSON
from taskmq.model.units import Duration, storable
from taskmq.model.values.wire_form import decode_value
from taskmq.run.locks import Lock, OwnLeases

__all__ = [
    "CHECKPOINT",
    "DETACHED",
    "HEARTBEAT",
    "LARGEST_VALUE",
    "JournalWriter",
    "RunJournal",
    "SavedStep",
    "read_value",
]

CHECKPOINT: Final = "checkpoint"
HEARTBEAT: Final = "heartbeat"
"""The names under which a run's checkpoint and the details of its heartbeat are saved."""

LARGEST_VALUE: Final = 256 * 1024
"""Bytes that one saved value may have as JSON: all values of a job are read together when it is resumed."""

_STEP: Final = "step "
_LONGEST_NOTE: Final = 500


class JournalWriter(Protocol):
    """Where journals are written to. Safe to use from any thread."""

    def changed(self, journal: "RunJournal", /) -> None:
        """There is news in `journal`, which is written soon. Returns at once."""
        ...

    async def begin(self, journal: "RunJournal", /) -> BegunRun:
        """Make the journal's run the last one of its job, once; later calls return the same.

        Raises:
            StateUnavailable: the state could not be reached.
            RunSuperseded: a run of a later attempt has begun.
            UnsupportedFeature: the app has no state.
        """
        ...

    async def save(self, journal: "RunJournal", name: str, value: bytes, /) -> None:
        """Keep `value` for later runs; durable when this returns. `begin` comes first.

        Raises:
            StateUnavailable: the state could not be reached; it may be saved all the same.
            RunSuperseded: another run of the job has begun.
        """
        ...

    def begin_blocking(self, journal: "RunJournal", /) -> BegunRun:
        """`begin` for code without a loop.

        Raises:
            UnsupportedFeature: this thread's loop would wait for itself.
        """
        ...

    def save_blocking(self, journal: "RunJournal", name: str, value: bytes, /) -> None:
        """`save` for code without a loop."""
        ...


class RunJournal:
    """What one run has written down.

    Attributes:
        started: when the run began, ms since the epoch.
        done, total, note: the progress that the task has reported last.
        details: of its last heartbeat, as JSON; None without one.
        is_dirty: news has come since it was written.
        has_told: the task has reported progress, or that it lives.
        run: the run as the state knows it, from its first `begin` on.
    """

    __slots__ = (
        "_left_behind",
        "_steps",
        "_writer",
        "attempt",
        "details",
        "done",
        "has_told",
        "is_dirty",
        "job_id",
        "note",
        "run",
        "started",
        "total",
    )  # fmt: skip

    def __init__(
        self, writer: JournalWriter, *, job_id: str, attempt: int, started: int, left_behind: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._left_behind = left_behind
        self._steps: set[str] = set()
        self.job_id: str = job_id
        self.attempt: int = attempt
        self.started: int = started
        self.done: float = 0
        self.total: float | None = None
        self.note: str = ""
        self.details: bytes | None = None
        self.is_dirty: bool = False
        self.has_told: bool = False
        self.run: BegunRun | None = None

    def tell_progress(self, done: float, total: float | None, note: str) -> None:
        self.done, self.total, self.note = done, total, storable(note[:_LONGEST_NOTE])
        # After the news: the reader that takes the mark away reads them next.
        if not self.is_dirty:
            self._touch()

    def tell_heartbeat(self, details: object) -> None:
        if details is not None:
            self.details = _encoded(details, "the details of the heartbeat")
        if not self.is_dirty:
            self._touch()

    def take(self, *, done: float, total: float | None, note: str, details: bytes | None) -> None:
        """News of the same run from another process."""
        self.done, self.total, self.note = done, total, note
        if details is not None:
            self.details = details
        self._touch()

    def mark_superseded(self) -> None:
        """Another run is the job's now."""
        self._left_behind()

    def begin(self) -> BegunRun:
        return self.run or self._writer.begin_blocking(self)

    async def abegin(self) -> BegunRun:
        return self.run or await self._writer.begin(self)

    def save(self, name: str, value: bytes) -> None:
        self._writer.save_blocking(self, name, value)
        self._remember(name, value)

    async def asave(self, name: str, value: bytes) -> None:
        await self._writer.save(self, name, value)
        self._remember(name, value)

    def claim_step(self, name: str) -> None:
        """Raise `InvalidOption` when the run has had a step of that name."""
        if name in self._steps:
            raise InvalidOption(
                f"job {self.job_id}: step {name!r} comes a second time in one run: give each step a different name"
            )
        self._steps.add(name)

    def release_step(self, name: str) -> None:
        """The step has failed, and may be tried again."""
        self._steps.discard(name)

    def checkpoint_bytes(self, value: object) -> bytes:
        return _encoded(value, f"the checkpoint of job {self.job_id}")

    def _remember(self, name: str, value: bytes) -> None:
        # Steps are not read again in the run that made them.
        if name == CHECKPOINT and self.run is not None:
            self.run.values[name] = value

    def _touch(self) -> None:
        self.is_dirty = self.has_told = True
        self._writer.changed(self)


class SavedStep:
    """One step of a run: where its value is, and how to read it.

    What a step returns is always what its saved value reads as, by the annotated return type of its function: a run
    that resumes gets nothing else than the one before got.

    Raises:
        InvalidOption: the run has had a step of that name.
    """

    __slots__ = ("_journal", "_name", "_type", "key")

    def __init__(self, journal: RunJournal, name: str, function: Callable[..., Any]) -> None:
        journal.claim_step(name)
        self._journal = journal
        self._name = name
        self._type = ReturnType(_returns(function))
        self.key = f"{_STEP}{name}"

    def encode(self, value: object) -> bytes:
        """Its value as it is saved.

        Raises:
            EncodeError: it has no form in JSON, or not the one of the annotated type.
            TooLarge: it has more than `LARGEST_VALUE` bytes.
        """
        return _encoded(value, f"the value of step {self._name!r}", self._type)

    def read(self, data: bytes) -> Any:
        """The value that was saved.

        Raises:
            EncodeError: it does not fit the annotated type, for example because the function has changed since.
        """
        try:
            return self._type.decode(data, JSON)
        except EncodeError as error:
            raise EncodeError(
                f"the value of step {self._name!r} does not fit what its function returns: {error.__cause__}"
            ) from error

    def failed(self) -> None:
        self._journal.release_step(self._name)


class Detached:
    """A writer for tasks that are called as plain functions: everything is kept, and goes with the call."""

    def __init__(self) -> None:
        self._leases = OwnLeases()

    def changed(self, journal: RunJournal) -> None:
        journal.is_dirty = False

    async def begin(self, journal: RunJournal) -> BegunRun:
        return self.begin_blocking(journal)

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        self.save_blocking(journal, name, value)

    def lock(self, name: str, *, owner: str, timeout: Duration | None, lease: Duration) -> Lock:
        leases = self._leases
        return Lock(name, leases=lambda: leases, call=asyncio.run, owner=owner, timeout=timeout, lease=lease)

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        if journal.run is None:
            journal.run = BegunRun(0, {})
        return journal.run

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        self.begin_blocking(journal).values[name] = value


DETACHED: Final = Detached()


def read_value(values: dict[str, bytes], name: str) -> Any:
    """A saved value as plain data; None where there is none."""
    data = values.get(name)
    return None if data is None else decode_value(data, JSON)


def _encoded(value: object, what: str, kind: ReturnType = PLAIN) -> bytes:
    try:
        data = kind.encode(value, JSON)
    except EncodeError as error:
        raise EncodeError(f"{what} cannot be saved: {error}") from error.__cause__
    if len(data) > LARGEST_VALUE:
        raise TooLarge(len(data), LARGEST_VALUE, what)
    return data


def _returns(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return", Any)
    except (NameError, TypeError, AttributeError):
        # Of a callable object, or with a name that only type checkers know: read as plain data.
        return Any
