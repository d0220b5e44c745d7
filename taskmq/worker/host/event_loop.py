"""Detection of a blocked event loop: its delay, and the stack that blocks it.

While a task blocks the loop, nothing is received, sent or settled here. The broker tolerates that for nearly two
heartbeats. So it is logged early, while it continues, with the stack that blocks the loop:

    the loop is blocked  a thread beside it, which looks a few times a second, logs the loop's stack and the runs
    the GIL is held      no Python code runs at all. The thread is among the first to run once the call into C
                         returns, and logs all stacks then; the caller has not got far. While the call goes on,
                         `py-spy dump` shows it
    the process was frozen  (SIGSTOP, a suspended machine) looks like the former afterwards

The first warning comes after `patience` seconds, the next ones at twice the time each; one line says when it is over,
and how long it took. All of it costs a timer of the loop and a wake-up of a thread four times a second, and nothing
per message.
"""

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from taskmq.run.console_log import DetailText
from taskmq.run.thread_frames import frame_of_thread
from taskmq.worker.host.stacks import stacks_of_threads

_log = logging.getLogger("taskmq.worker")

_TICKS: Final = 4
_LONGEST_TICK: Final = 0.25
_SHOWN: Final = 10
_REMEMBERED: Final = 10.0
_LAST_WORDS: Final = 1.0
# Characters.
_STACKS: Final = 20_000


class LoopMonitor:
    """Watches the loop on which `watching` is entered.

    Args:
        patience: seconds that the loop may be blocked before a warning; 0 disables the watch.
        running: returns the names of the runs; called from another thread.
    """

    def __init__(self, *, patience: float, running: Callable[[], Sequence[str]]) -> None:
        self._patience = patience
        self._running = running
        self._tick = min(patience / _TICKS, _LONGEST_TICK)
        self._due = 0.0
        self._lag = 0.0
        self._lagged = 0.0
        self._over = threading.Event()

    @property
    def lag(self) -> float:
        """Maximum delay of the loop in the last ten seconds, or at present, in seconds."""
        late = time.monotonic() - self._due if self._due else 0.0
        return max(self._lag, late) if late > self._tick else self._lag

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Watch the running loop for the duration of the block."""
        if not self._patience:
            yield
            return
        ticking = asyncio.create_task(self._turn(), name="taskmq loop watch")
        thread = threading.Thread(target=self._look, args=(threading.get_ident(),), name="taskmq-watch", daemon=True)
        self._due = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(_LAST_WORDS)
            ticking.cancel()
            await asyncio.wait((ticking,))
            self._due = 0.0

    async def _turn(self) -> None:
        while True:
            now = time.monotonic()
            late = max(now - self._due, 0.0)
            if late >= self._lag or now - self._lagged > _REMEMBERED:
                self._lag, self._lagged = late, now
            self._due = now + self._tick
            await asyncio.sleep(self._tick)

    def _look(self, ident: int) -> None:
        spell: _Spell | None = None
        looked = self._due
        while not self._over.wait(self._tick):
            now, last = time.monotonic(), looked
            looked = now
            due = self._due
            # If only this thread is late, as on a busy machine, the loop is not.
            if now - last > self._tick + self._patience and self.lag > self._patience:
                self._complain_of_silence(now - last - self._tick)
                spell = None
                # From here on the loop's present behaviour counts.
                self._due = max(due, now)
            elif now - due > self._patience:
                spell = spell or _Spell(due, self._patience)
                if spell.is_worth_words(now):
                    self._complain(now - due, ident)
            elif spell is not None:
                _say_over(spell, due - self._tick)
                spell = None
        if spell is not None:
            _say_over(spell, time.monotonic())

    def _complain(self, seconds: float, ident: int) -> None:
        frame = frame_of_thread(ident)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread has ended)"
        _log.warning(
            "event loop blocked for %.1f s: run blocking code in a thread or a process; nothing is received or "
            "settled meanwhile; running: %s\n%s",
            seconds,
            self._names(),
            DetailText(stack),
        )

    def _complain_of_silence(self, seconds: float) -> None:
        _log.warning(
            "no Python code of this process could run for %.1f s: a call into C held the GIL, or the process was "
            "stopped; running: %s; its threads are now at\n%s",
            seconds,
            self._names(),
            DetailText(stacks_of_threads(limit=_STACKS)),
        )

    def _names(self) -> str:
        names: Sequence[str] = ()
        # The loop may change this collection meanwhile.
        with contextlib.suppress(RuntimeError):
            names = self._running()
        shown = ", ".join(names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"{shown}{more}" or "nothing"


def _say_over(spell: "_Spell", now: float) -> None:
    _log.warning("event loop runs again; it was blocked for %.1f s", now - spell.since)


class _Spell:
    """A period in which the loop is blocked.

    Attributes:
        since: when the loop should have run.
    """

    def __init__(self, since: float, patience: float) -> None:
        self.since = since
        self._next = patience

    def is_worth_words(self, now: float) -> bool:
        """Return whether to log now, for the first time or again."""
        if now - self.since < self._next:
            return False
        self._next = 2 * (now - self.since)
        return True


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop factory, if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
