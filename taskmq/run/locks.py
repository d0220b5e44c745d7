"""Locks that one holder at a time has, across all processes: `async with app.lock("account:7") as lock`.

A lock is a lease in the state, or without a state in the job store. It is renewed in the background while the block
runs, and released at its end. The holder relies on it for the lease's duration from the moment before the last
renewal. If there is no answer for that long, if the process was stopped, or if the state was emptied, the lock is
lost, and another holder may have it. The block can check that (`is_lost`, `wait_lost()`, `check()`), and ends with
`LockLost`.

No lock of this kind can keep a stopped holder from acting when it continues. So the guarded resource must take the
token, which grows from holder to holder, and refuse smaller ones than it has seen.
"""

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from contextvars import Token as Mark
from types import TracebackType
from typing import Any, Final, Protocol, Self, runtime_checkable

from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import InvalidOption, LockLost, LockTimeout, StateUnavailable, UnsupportedFeature
from taskmq.model.backoff import Backoff
from taskmq.model.keys import lock_key
from taskmq.model.units import Duration, parse_duration

_log = logging.getLogger("taskmq")

_NAME_LIMIT: Final = 255
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_GROWTH: Final = 1.6

_held: ContextVar[frozenset[str]] = ContextVar("taskmq_locks", default=frozenset())


class Lock:
    """A named lock, for one block: `async with`, or `with` in code without a loop.

    Args:
        leases: the store, called on the loop where it is used.
        call: runs a coroutine of this lock from code without a loop.
        owner: name of its holder, for people.
        key: key of its lease; None: the key of the lock of this name.
        timeout: maximum wait; None: unlimited; 0: one attempt.
        lease: how long it outlives its holder's process, or its connection to the state.
        monotonic: the clock that limits the reliance on it.

    Attributes:
        name: name of the lock.
        token: larger than that of every earlier holder; 0 before the lock is held.

    Raises:
        InvalidOption: a value is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        leases: Callable[[], LeaseStore],
        call: Callable[[Coroutine[Any, Any, Any]], Any],
        owner: str,
        key: str | None = None,
        timeout: Duration | None = None,
        lease: Duration = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not name or len(name.encode(errors="replace")) > _NAME_LIMIT:
            raise InvalidOption(f"lock {name!r}: its name must be a string of 1 to {_NAME_LIMIT} bytes")
        self.name = name
        self.token: int = 0
        self._leases = leases
        self._call = call
        self._monotonic = monotonic
        self._owner = owner
        self._key = lock_key(name) if key is None else key
        self._timeout = None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        self._seconds = parse_duration(lease, what="lease").total_seconds()
        if self._seconds < 1:
            raise InvalidOption(f"lock {name!r}: lease={lease!r}: must be at least a second")
        self._note = uuid.uuid4().hex
        self._trusted_until = 0.0
        self._is_gone = False
        self._ended = asyncio.Event()
        self._keeper = LeaseKeeper(f"leases of lock {name!r}", seconds=self._seconds, renew=self._renew)
        self._mark: Mark[frozenset[str]] | None = None
        self._acquiring: asyncio.Task[Any] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether another holder may have it, although the block continues. False before and after the block."""
        return self.token > 0 and (self._is_gone or self._monotonic() >= self._trusted_until)

    def check(self) -> None:
        """Check that the lock is still held.

        Raises:
            LockLost: another holder may have it.
        """
        if self.is_lost:
            raise LockLost(self.name, self.token)

    async def wait_lost(self) -> bool:
        """Return True once the lock is lost, and False once its block has ended; for a task next to the block."""
        while not self.is_lost:
            if self._ended.is_set():
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._trusted_until - self._monotonic(), 0.001)):
                    await self._ended.wait()
        return True

    async def __aenter__(self) -> Self:
        """Wait for the lock and acquire it.

        Raises:
            LockTimeout: it could not be acquired in time.
            StateUnavailable: the state, which knows the lock's holder, could not be reached.
            InvalidOption: this task holds it already.
        """
        self._begin()
        await self._acquire()
        self._remember()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._forget()
        was_lost = self.is_lost
        await asyncio.shield(self._release())
        self._end(was_lost=was_lost, error=error)

    def __enter__(self) -> Self:
        """`__aenter__` for code without a loop."""
        self._begin()
        try:
            self._call(self._acquire_for_a_thread())
            self._remember()
        except (LockTimeout, StateUnavailable, UnsupportedFeature):
            raise
        except BaseException:
            # An interrupt ends the wait and not the call, which would acquire the lock for a block that never starts.
            self._forget()
            with contextlib.suppress(StateUnavailable, RuntimeError):
                self._call(self._abandon())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._forget()
        was_lost = self.is_lost
        # Without an answer it expires by itself.
        with contextlib.suppress(StateUnavailable):
            self._call(self._release())
        self._end(was_lost=was_lost, error=error)

    def _begin(self) -> None:
        if self.token:
            raise InvalidOption(
                f"lock {self.name!r}: it is held already; create another lock of this name for another block"
            )
        if self._key in _held.get():
            raise InvalidOption(
                f"lock {self.name!r} is held by this task, which would wait for itself: acquire it once, further out"
            )

    def _remember(self) -> None:
        self._mark = _held.set(_held.get() | {self._key})

    def _forget(self) -> None:
        if self._mark is not None:
            _held.reset(self._mark)
            self._mark = None

    def _end(self, *, was_lost: bool, error: BaseException | None) -> None:
        token, self.token, self._is_gone = self.token, 0, False
        if was_lost and error is None:
            raise LockLost(self.name, token)

    async def _acquire_for_a_thread(self) -> None:
        """Acquire the lock in a call that `_abandon` can end from outside."""
        self._acquiring = asyncio.current_task()
        try:
            await self._acquire()
        finally:
            self._acquiring = None

    async def _acquire(self) -> None:
        leases = self._leases()
        until = None if self._timeout is None else self._monotonic() + self._timeout
        # Between half and all of the pause, so that waiters do not retry together.
        backoff = Backoff(
            _FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH, draw=lambda pause: pause * random.uniform(0.5, 1)
        )
        try:
            while True:
                asked = self._monotonic()
                answer = await leases.acquire(self._key, owner=self._owner, seconds=self._seconds, note=self._note)
                if not isinstance(answer, Lease) or answer.note == self._note:
                    # This holder's even if an earlier answer was lost.
                    self._start(answer.token if isinstance(answer, Lease) else answer, asked)
                    return
                left = answer.left if until is None else min(answer.left, until - self._monotonic())
                if until is not None and self._monotonic() >= until:
                    raise LockTimeout(self.name, answer.owner)
                await asyncio.sleep(max(min(backoff.next(), left), 0.001))
        except asyncio.CancelledError:
            await asyncio.shield(self._give_up(leases))
            raise

    def _start(self, token: int, asked: float) -> None:
        self.token = token
        self._is_gone = False
        self._trusted_until = asked + self._seconds
        self._ended = asyncio.Event()
        self._keeper.watch()

    async def _renew(self) -> bool:
        asked = self._monotonic()
        try:
            is_held = await self._leases().renew(self._key, token=self.token, seconds=self._seconds)
        except StateUnavailable as error:
            if asked < self._trusted_until:
                raise
            _log.warning("lock %r is lost: %s", self.name, error)
            self._ended.set()
            return False
        if is_held:
            self._trusted_until = asked + self._seconds
        else:
            _log.warning("lock %r is lost: its lease was over before it was renewed", self.name)
            self._is_gone = True
            self._ended.set()
        return is_held

    async def _release(self) -> None:
        await self._keeper.aclose()
        self._ended.set()
        try:
            await self._leases().release(self._key, token=self.token)
        except StateUnavailable as error:
            _log.warning("lock %r ends within %g s: %s", self.name, self._seconds, error)

    async def _abandon(self) -> None:
        """End `_acquire`, which no caller waits for any more, and release what it has acquired."""
        acquiring = self._acquiring
        if acquiring is not None:
            acquiring.cancel()
            await asyncio.wait((acquiring,))
        if self.token:
            await self._release()
            self.token = 0

    async def _give_up(self, leases: LeaseStore) -> None:
        """Release a lease that may have been granted after its caller stopped waiting."""
        with contextlib.suppress(StateUnavailable):
            lease = await leases.find(self._key)
            if lease is not None and lease.note == self._note:
                await leases.release(self._key, token=lease.token)

    def __repr__(self) -> str:
        state = f"held, token {self.token}" if self.token else "not held"
        return f"<Lock {self.name} ({'lost' if self.is_lost else state})>"


@runtime_checkable
class LockService(Protocol):
    """Source of locks for tasks."""

    def lock(self, name: str, *, owner: str, timeout: Duration | None, lease: Duration) -> Lock:
        """Return a lock that is not held yet.

        Raises:
            UnsupportedFeature: the app has neither a state nor a store.
        """
        ...


class OwnLeases:
    """A `LeaseStore` of this object alone, for tasks that are called as plain functions."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._held: dict[str, tuple[str, int, float, str]] = {}
        self._last = 0

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        if (held := await self.find(key)) is not None:
            return held
        self._last += 1
        self._held[key] = (owner, self._last, self._monotonic() + seconds, note)
        return self._last

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        held = await self.find(key)
        if held is None or held.token != token:
            return False
        self._held[key] = (held.owner, token, self._monotonic() + seconds, held.note if note is None else note)
        return True

    async def release(self, key: str, *, token: int) -> None:
        if (held := await self.find(key)) is not None and held.token == token:
            del self._held[key]

    async def find(self, key: str) -> Lease | None:
        owner, token, until, note = self._held.get(key, ("", 0, 0.0, ""))
        left = until - self._monotonic()
        return Lease(owner=owner, token=token, left=left, note=note) if left > 0 else None
