"""The context of a run: operations for the task's code."""

import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from datetime import datetime
from math import isfinite
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast, overload

from taskmq.contracts.stores import BegunRun
from taskmq.errors import EncodeError, UnsupportedFeature
from taskmq.model.envelope import Envelope
from taskmq.model.history.suspensions import ARGUMENTS
from taskmq.model.units import Duration
from taskmq.run.detached_writer import DETACHED
from taskmq.run.facts import RunFacts
from taskmq.run.journal import JournalWriter, RunJournal, SavedStep
from taskmq.run.locks import Lock, LockService
from taskmq.run.waits import NO_DEFAULT, SignalWait, Sleep, continue_now, replace_arguments

P = ParamSpec("P")
R = TypeVar("R")

_opening: Final = threading.RLock()


class Context(RunFacts, eq=False):
    """An attempt of a job. Injected into a task's parameter that is annotated with this class.

    Its facts are those of `RunFacts`.

    **Reports of a running task** (`progress`, `heartbeat`) may be called any number of times, from any thread. Only
    the last value is kept, written at most once a second and at the end. They never raise because of the state or the
    store.

    **Saved values for later runs** (`step`, `checkpoint`; `astep`, `acheckpoint` in coroutines) are durable when the
    call returns. A run that follows after a crash, a retry or a deploy finds them. Only the last run to start may
    save: an earlier one that is still alive somewhere cannot save any more. All values are deleted when the job has
    ended, and after a week without a run. Values of a stored job are saved in its store, by the scheduler; those of
    other jobs in the state. These methods raise:

    - `StateUnavailable`: the value may not be saved, so the run must not continue as if it were. For a stored job: no
      scheduler has answered for a minute.
    - `RunSuperseded`: another run of the job has started.
    - `EncodeError`, `TooLarge`: a value cannot be encoded as JSON, or is too large.
    - `UnsupportedFeature`: the app has no state, and the job is not stored; or a blocking call was made on the event
      loop.

    If the task is called as a plain function, outside of a worker, all of them work and nothing outlives the call.
    """

    _writer: JournalWriter = DETACHED
    journal: RunJournal | None = None
    _is_stored: bool = False

    @classmethod
    def create_detached(cls, task: str) -> "Context":
        """Create a context for a call of the task as a plain function, outside of a worker."""
        return cls(Envelope(task=task), job_id="", max_attempts=1, queue="", redelivered=False)

    def lock(self, name: str, *, timeout: Duration | None = None, lease: Duration = 30.0) -> Lock:
        """Return a lock across all processes: `async with context.lock("account:7")`, and `with` in plain functions.

        Args:
            timeout: maximum wait; None: unlimited; 0: one attempt.
            lease: how long it outlives this process, or its connection to the state.

        Raises:
            InvalidOption: a value is invalid.
            UnsupportedFeature: the app has neither a state nor a store; or the task runs in a separate process.
        """
        if not isinstance(self._writer, LockService):
            raise UnsupportedFeature(
                "context.lock does not work in processes of executor='process': use `with app.lock(...)` there"
            )
        return self._writer.lock(name, owner=f"job {self.job_id or self.task}", timeout=timeout, lease=lease)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the progress of the task, which `Job.progress()` returns elsewhere.

        Raises:
            EncodeError: `done` or `total` is not a finite number.
        """
        if not isfinite(done) or not (total is None or isfinite(total)):
            raise EncodeError(
                f"the progress {done!r} of {total!r} cannot be encoded as JSON: both must be finite; omit a total "
                "that is not known"
            )
        self.open_journal().tell_progress(done, total, note)

    def heartbeat(self, details: object = None) -> None:
        """Report that the task is alive, with optional details, which a later run reads as `last_heartbeat`.

        Raises:
            EncodeError: the details cannot be encoded as JSON.
        """
        self.open_journal().tell_heartbeat(details)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` once per job and return its value: later runs get the saved value.

        A function that raises is not done, and runs again in the next run. So does one that was interrupted between
        its return and the saving. The returned value is always the saved JSON, decoded by the function's return
        annotation, even in the first run.

        Args:
            name: unique among the steps of the task; the key of the value.
        """
        journal = self.open_journal()
        step = SavedStep(journal, name, function)
        try:
            saved = step.find_saved(journal.begin().values)
            if saved is None:
                with step.mark_running():
                    result = function(*args, **kwargs)
                saved = step.encode(result)
                value = step.read(saved)
                journal.save(step.key, saved)
                return cast("R", value)
        except BaseException:
            step.mark_failed()
            raise
        return cast("R", step.read(saved))

    async def astep(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what `step` does, for a coroutine function and without blocking the event loop."""
        journal = self.open_journal()
        step = SavedStep(journal, name, function)
        try:
            saved = step.find_saved((await journal.abegin()).values)
            if saved is None:
                with step.mark_running():
                    result = await function(*args, **kwargs)
                saved = step.encode(result)
                value = step.read(saved)
                await journal.asave(step.key, saved)
                return cast("R", value)
        except BaseException:
            step.mark_failed()
            raise
        return cast("R", step.read(saved))

    def sleep(self, duration: Duration | None = None, /, *, until: datetime | None = None, name: str = "") -> None:
        """Suspend the job for a time: the run ends here, and a later run returns from this call.

        A job that sleeps occupies no slot, and its attempt continues. The task runs again from its start, so work
        before this call belongs in a `step`. Only jobs of a store can sleep.

        Args:
            duration: counted from the call in the first run that reaches it.
            until: an instant with a time zone, instead of a duration.
            name: needed in asyncio tasks and threads that the task starts, a different one in each.

        Raises:
            Suspension: the time is not over. `except Exception` does not catch it, and no code should.
            InvalidOption: neither or both are given, one is invalid, or a name is missing.
            UnsupportedFeature: the job was sent, the task is called as a plain function, a step's function calls, or
                the run has read `last_heartbeat`.
        """
        journal = self._open_waiting_journal("sleep")
        sleep = Sleep(journal, duration, until, name)
        if (unsaved := sleep.find_unsaved(journal.begin().values)) is not None:
            journal.save(sleep.key, unsaved)
        sleep.end()

    async def asleep(
        self, duration: Duration | None = None, /, *, until: datetime | None = None, name: str = ""
    ) -> None:
        """Do what `sleep` does, without blocking the event loop."""
        journal = self._open_waiting_journal("sleep")
        sleep = Sleep(journal, duration, until, name)
        if (unsaved := sleep.find_unsaved((await journal.abegin()).values)) is not None:
            await journal.asave(sleep.key, unsaved)
        sleep.end()

    @overload
    def wait_for(self, signal: str, /, *, timeout: Duration | None = ..., default: Any = ...) -> Any: ...

    @overload
    def wait_for(self, signal: str, form: type[R], /, *, timeout: Duration | None = ..., default: Any = ...) -> R: ...

    def wait_for(
        self, signal: str, form: Any = Any, /, *, timeout: Duration | None = None, default: Any = NO_DEFAULT
    ) -> Any:
        """Suspend the job until a signal of this name comes, and return its value.

        A signal that came earlier is taken at once. Each signal is taken by one call: the second call of a name
        waits for the second signal. See `sleep` for what happens to the run.

        Args:
            form: type of the value; by default plain data.
            timeout: counted from the call in the first run that reaches it; None: it waits for ever.
            default: value at the timeout, instead of the error.

        Raises:
            SignalTimeout: there was no signal in time.
            EncodeError: the value does not fit the type.
            Suspension: see `sleep`.
            InvalidOption: the name or the timeout is invalid, or another asyncio task or thread of the run has waited
                for the same signal.
            UnsupportedFeature: see `sleep`.
        """
        journal = self._open_waiting_journal("wait_for")
        wait = SignalWait(journal, signal, form, timeout, default)
        if (unsaved := wait.find_unsaved(journal.begin().values)) is not None:
            journal.save(wait.key, unsaved)
        return wait.end()

    @overload
    async def await_for(self, signal: str, /, *, timeout: Duration | None = ..., default: Any = ...) -> Any: ...

    @overload
    async def await_for(
        self, signal: str, form: type[R], /, *, timeout: Duration | None = ..., default: Any = ...
    ) -> R: ...

    async def await_for(
        self, signal: str, form: Any = Any, /, *, timeout: Duration | None = None, default: Any = NO_DEFAULT
    ) -> Any:
        """Do what `wait_for` does, without blocking the event loop."""
        journal = self._open_waiting_journal("wait_for")
        wait = SignalWait(journal, signal, form, timeout, default)
        if (unsaved := wait.find_unsaved((await journal.abegin()).values)) is not None:
            await journal.asave(wait.key, unsaved)
        return wait.end()

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Start the job over with new arguments, under its id: for loops that never end.

        The arguments, at most 256 KiB, replace those of the job. Its saved values are deleted, except signals that no
        call has taken.

        Raises:
            Suspension: always; the job runs again at once.
            EncodeError, TooLarge: the arguments have no form in JSON, or are too large.
            UnsupportedFeature: see `sleep`.
        """
        journal = self._open_durable_journal("continue_as_new")
        journal.save(ARGUMENTS, replace_arguments(journal, journal.begin().values, args, kwargs))
        raise continue_now(journal)

    async def acontinue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Do what `continue_as_new` does, without blocking the event loop."""
        journal = self._open_durable_journal("continue_as_new")
        await journal.asave(ARGUMENTS, replace_arguments(journal, (await journal.abegin()).values, args, kwargs))
        raise continue_now(journal)

    def checkpoint(self, value: object) -> None:
        """Save the position of the task, replacing the last checkpoint: for loops."""
        journal = self.open_journal()
        data = journal.checkpoint_bytes(value)
        values = journal.begin().values
        journal.save(*journal.waits.place_checkpoint(data, values))

    async def acheckpoint(self, value: object) -> None:
        """Do what `checkpoint` does, without blocking the event loop."""
        journal = self.open_journal()
        data = journal.checkpoint_bytes(value)
        values = (await journal.abegin()).values
        await journal.asave(*journal.waits.place_checkpoint(data, values))

    async def resume(self) -> None:
        """Load the values of earlier runs, so that a coroutine can read the three attributes below.

        Plain functions do not need it: they read the attributes at any time, and the first one asks the state.
        """
        await self.open_journal().abegin()

    @property
    def last_checkpoint(self) -> Any:
        """Last checkpoint of an earlier run, or of this one, as plain data; None without one.

        A run that reads it continues there: sleeps and waits behind it get what was saved behind it.
        """
        return self.open_journal().read_checkpoint()

    @property
    def last_heartbeat(self) -> Any:
        """Details of an earlier run's last heartbeat, as plain data; None without any.

        The last second of reports may be missing: heartbeats are not saved one by one. After a run has read it, its
        calls of `sleep` and `wait_for` raise `UnsupportedFeature`.
        """
        return self.open_journal().read_heartbeat()

    @property
    def fencing_token(self) -> int:
        """A number larger than that of every run of this job that has requested one before; 0 outside of a worker.

        For a job with an idempotency key it is the key's: larger than that of every earlier run of the key, whatever
        its job.

        Pass it to the receiver of the task's effects, which refuses smaller numbers than it has seen: then a run that
        was superseded and wakes up late changes nothing. Read it before the first effect; the number is this run's
        from the first read, resume or save on. It keeps growing after the state was emptied, unless the clock of the
        state's server goes back.
        """
        return self._begun.token if self.fence is None else self.fence[1]

    @property
    def _begun(self) -> BegunRun:
        return self.open_journal().begin()

    def _open_durable_journal(self, call: str) -> RunJournal:
        """Return the journal of a run that may be suspended."""
        if not self._is_stored and self._envelope.store is None:
            raise UnsupportedFeature(
                f"{call}() suspends jobs of a store, and task {self.task} was sent without one, or called as a plain "
                "function: submit it with app.jobs.submit() or lane='store'; tests run it with taskmq.testing.Harness"
            )
        journal = self.open_journal()
        journal.refuse_in_step(call)
        return journal

    def _open_waiting_journal(self, call: str) -> RunJournal:
        """Return the journal of a run whose next call waits."""
        journal = self._open_durable_journal(call)
        journal.refuse_after_heartbeat(call)
        return journal

    def open_journal(self) -> RunJournal:
        """Return this run's journal, created on first use."""
        return self.journal or self._first_journal()

    def _first_journal(self) -> RunJournal:
        with _opening:
            # Another thread of the task may have been faster.
            if self.journal is None:
                self.journal = RunJournal(
                    self._writer,
                    job_id=self.job_id,
                    attempt=self.attempt,
                    started=self.started,
                    left_behind=self.mark_cancelled,
                    invitation=self._envelope.store,
                )
            return self.journal


current_context: ContextVar[Context | None] = ContextVar("taskmq_context", default=None)
"""The current run: messages that a task sends from inside carry its job id as `parent`."""


@contextlib.contextmanager
def leave_run() -> Generator[None]:
    """Run the block outside of the current run, so that what it sends or starts does not belong to the run's job."""
    token = current_context.set(None)
    try:
        yield
    finally:
        current_context.reset(token)
