"""Journal of one run: its progress, its heartbeat, and its saved values for later runs.

A journal is created when a task uses one of these for the first time; other runs have none. It writes to a
`JournalWriter`: the worker's, which is connected to the state and to schedulers, or a child process's, which has a
pipe to the worker.

Progress and heartbeats are news: the last ones count, they are written now and then, and if they cannot be written
the task continues without. Saving is a promise: the value is durable when `save` returns, otherwise `save`
raises.
"""

import asyncio
import threading
import typing
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from taskmq.contracts.stores import BegunRun
from taskmq.errors import EncodeError, InvalidOption, TooLarge, UnsupportedFeature
from taskmq.model.envelope import JSON, Invitation
from taskmq.model.history.suspensions import CHECKPOINT, POSITION, STEP, RunWaits, find_checkpoint
from taskmq.model.units import storable
from taskmq.model.values.return_type import PLAIN, ReturnType
from taskmq.model.values.wire_form import decode_value

HEARTBEAT: Final = "heartbeat"
"""Name under which the details of a run's heartbeat are saved."""

FLOW: Final = "taskmq-task"
"""Name of the asyncio tasks and threads in which workers call the functions of tasks."""
_FLOWS: Final = frozenset({FLOW, threading.main_thread().name})

LARGEST_VALUE: Final = 256 * 1024
"""Maximum bytes of one value in the state, as JSON: all values of a job are read together when it resumes."""

_LONGEST_NOTE: Final = 500


class JournalWriter(Protocol):
    """Writer of journals. Safe to use from any thread."""

    def mark_changed(self, journal: "RunJournal", /) -> None:
        """Record that `journal` has news to write soon. Returns immediately."""
        ...

    def now_ms(self) -> int:
        """Return the worker's time, ms since the epoch."""
        ...

    async def begin(self, journal: "RunJournal", /) -> BegunRun:
        """Make the journal's run the last one of its job, once; later calls return the same.

        Raises:
            StateUnavailable: the state could not be reached.
            RunSuperseded: a run of a later attempt has started.
            UnsupportedFeature: the app has no state.
        """
        ...

    async def save(self, journal: "RunJournal", name: str, value: bytes, /) -> None:
        """Save `value` for later runs; durable when this returns. Call `begin` first.

        Raises:
            StateUnavailable: the state could not be reached; it may be saved all the same.
            RunSuperseded: another run of the job has started.
            TooLarge: the value is too large.
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
    """The journal of one run.

    Attributes:
        started: start of the run, ms since the epoch.
        done, total, note: the last progress that the task reported.
        details: of its last heartbeat, as JSON; None without one.
        is_dirty: whether there is news since it was written.
        has_told: whether the task has reported progress or a heartbeat.
        run: the run as the state or the store knows it, from its first `begin` on.
        invitation: of a stored job.
        saved: names of the values that this run has saved.
        waits: numbers of the run's waiting calls.
    """

    __slots__ = (
        "_is_after_heartbeat",
        "_left_behind",
        "_steps",
        "_waiting",
        "_writer",
        "attempt",
        "details",
        "done",
        "has_told",
        "invitation",
        "is_dirty",
        "job_id",
        "note",
        "run",
        "saved",
        "started",
        "total",
        "waits",
    )  # fmt: skip

    def __init__(
        self,
        writer: JournalWriter,
        *,
        job_id: str,
        attempt: int,
        started: int,
        left_behind: Callable[[], None],
        invitation: Invitation | None = None,
    ) -> None:
        self._writer = writer
        self._left_behind = left_behind
        self._steps: set[str] = set()
        self._waiting: dict[str, asyncio.Task[Any] | threading.Thread] = {}
        self._is_after_heartbeat = False
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
        self.invitation: Invitation | None = invitation
        self.saved: list[str] = []
        self.waits: RunWaits = RunWaits()

    @property
    def has_saved(self) -> bool:
        """Whether this run may have saved values for later runs."""
        return self.run is not None or self.details is not None

    def tell_progress(self, done: float, total: float | None, note: str) -> None:
        self.done, self.total, self.note = done, total, storable(note[:_LONGEST_NOTE])
        # After the news: the reader that clears the mark reads them next.
        if not self.is_dirty:
            self._touch()

    def tell_heartbeat(self, details: object) -> None:
        if details is not None:
            data = _encode(details, "the details of the heartbeat")
            check_size(HEARTBEAT, data)
            self.details = data
        if not self.is_dirty:
            self._touch()

    def take(self, *, done: float, total: float | None, note: str, details: bytes | None) -> None:
        """Accept news of the same run from another process."""
        self.done, self.total, self.note = done, total, note
        if details is not None:
            self.details = details
        self._touch()

    def now_ms(self) -> int:
        return self._writer.now_ms()

    def mark_superseded(self) -> None:
        """Mark the run as superseded by another run of the job."""
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
        """Raise `InvalidOption` if the run has had a step of that name."""
        if name in self._steps:
            raise InvalidOption(
                f"job {self.job_id}: step {name!r} occurs twice in one run: give each step a different name"
            )
        self._steps.add(name)

    def release_step(self, name: str) -> None:
        """Allow a step that failed to be tried again."""
        self._steps.discard(name)
        self.waits.forget_order()

    def checkpoint_bytes(self, value: object) -> bytes:
        return _encode(value, f"the checkpoint of job {self.job_id}")

    def read_checkpoint(self) -> Any:
        """Return the last checkpoint of this run, else of earlier ones, as plain data; None if there is none."""
        values = self.begin().values
        if not {CHECKPOINT, POSITION}.intersection(self.saved):
            self.waits.resume(values)
        data = find_checkpoint(values)
        return None if data is None else decode_value(data, JSON)

    def read_heartbeat(self) -> Any:
        """Return the details of the last heartbeat of earlier runs, as plain data; None if there are none."""
        self._is_after_heartbeat = True
        data = self.begin().values.get(HEARTBEAT)
        return None if data is None else decode_value(data, JSON)

    def refuse_after_heartbeat(self, call: str) -> None:
        """Raise `UnsupportedFeature` if the run has read its last heartbeat, which keeps no numbers of calls."""
        if self._is_after_heartbeat:
            raise UnsupportedFeature(
                f"job {self.job_id}: {call}() after last_heartbeat would get the value of an earlier call: continue "
                "from last_checkpoint, which knows the calls before it"
            )

    def claim_signal(self, name: str) -> None:
        """Raise `InvalidOption` if another asyncio task or thread of the run has waited for this signal."""
        flow = _find_task() or threading.current_thread()
        if self._waiting.setdefault(name, flow) is not flow:
            raise InvalidOption(
                f"job {self.job_id}: two asyncio tasks or threads of the run wait for the signal {name!r}, and their "
                "order may differ in the next run: let each wait for a signal of another name"
            )

    def refuse_in_step(self, call: str) -> None:
        """Raise `UnsupportedFeature` if the caller is the function of a step: once saved, it is not called again."""
        step = _running_step.get()
        if step is not None and step.journal is self:
            raise UnsupportedFeature(
                f"job {self.job_id}: {call}() in the function of step {step.name!r} would suspend the job before the "
                "step is saved: call it in the task, outside of steps"
            )

    def is_ordered_flow(self) -> bool:
        """Whether calls of the caller have an order: those of a run with a checkpoint may depend on it."""
        return self.is_own_flow() and (self.run is None or find_checkpoint(self.run.values) is None)

    def is_own_flow(self) -> bool:
        """Whether the caller is the flow of the task's function, not an asyncio task or thread that it started."""
        task = _find_task()
        # Without a task it is a thread, or the main one of a process, which runs no loop.
        return threading.current_thread().name in _FLOWS if task is None else task.get_name() == FLOW

    def _remember(self, name: str, value: bytes) -> None:
        self.saved.append(name)
        if name.startswith(STEP):
            self.waits.end_step(name)
        # Steps are not read again in the run that made them.
        if name in (CHECKPOINT, POSITION) and self.run is not None:
            self.run.values[name] = value

    def _touch(self) -> None:
        self.is_dirty = self.has_told = True
        self._writer.mark_changed(self)


class SavedStep:
    """A step of a run: the key of its value, and how to decode it.

    The value of a step is always decoded from its saved form, by the annotated return type of its function: a run
    that resumes gets exactly what the one before got.

    Raises:
        InvalidOption: the run has had a step of that name.
    """

    __slots__ = ("_type", "journal", "key", "name")

    def __init__(self, journal: RunJournal, name: str, function: Callable[..., Any]) -> None:
        journal.claim_step(name)
        self.journal = journal
        self.name = name
        self._type = ReturnType(_returns(function))
        # A file's name may have characters that no message can carry.
        self.key = f"{STEP}{storable(name)}"

    def find_saved(self, values: Mapping[str, bytes]) -> bytes | None:
        """Return the value that an earlier run saved; None if there is none.

        Raises:
            CallMismatch: an earlier run of a stored job made another call instead.
        """
        if self.journal.invitation is not None:
            self.journal.waits.next_step(self.key, values, is_own=self.journal.is_ordered_flow())
        return values.get(self.key)

    @contextmanager
    def mark_running(self) -> Generator[None]:
        """Mark the block, and the asyncio tasks that it starts, as the step's function."""
        token = _running_step.set(self)
        try:
            yield
        finally:
            _running_step.reset(token)

    def encode(self, value: object) -> bytes:
        """Encode the step's value.

        Raises:
            EncodeError: it cannot be encoded as JSON, or does not fit the annotated type.
        """
        return _encode(value, f"the value of step {self.name!r}", self._type)

    def read(self, data: bytes) -> Any:
        """Decode the saved value.

        Raises:
            EncodeError: it does not fit the annotated type, for example because the function has changed.
        """
        try:
            return self._type.decode(data, JSON)
        except EncodeError as error:
            raise EncodeError(
                f"the value of step {self.name!r} does not match its function's return type: {error.__cause__}"
            ) from error

    def mark_failed(self) -> None:
        self.journal.release_step(self.name)


_running_step: ContextVar[SavedStep | None] = ContextVar("taskmq_step", default=None)


def _find_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def describe_saved(name: str) -> str:
    """Describe a saved value for people."""
    if name.startswith(STEP):
        return f"the value of step {name.removeprefix(STEP)!r}"
    if name not in (CHECKPOINT, POSITION, HEARTBEAT):
        return f"the value {name!r}"
    return "the details of the heartbeat" if name == HEARTBEAT else "the checkpoint"


def check_size(name: str, value: bytes) -> None:
    """Raise `TooLarge` if a value is too large for the state."""
    if len(value) > LARGEST_VALUE:
        raise TooLarge(len(value), LARGEST_VALUE, describe_saved(name))


def _encode(value: object, what: str, kind: ReturnType = PLAIN) -> bytes:
    try:
        data = kind.encode(value, JSON)
    except EncodeError as error:
        raise EncodeError(f"{what} cannot be saved: {error}") from error.__cause__
    return data


def _returns(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return", Any)
    except (NameError, TypeError, AttributeError):
        # For a callable object, or with a name that only type checkers know: decode plain data.
        return Any
