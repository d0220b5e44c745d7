"""Log lines of a run in an executor process, sent over the pipe to the worker, which stores them.

The thread of the journal writes the frames: an exception raised from outside in the main thread must not leave half a
frame. A run that logs forever fills no pipe: further lines are only counted, and the count is sent at its end.
"""

import threading
from collections.abc import Callable
from typing import Final

from taskmq.executors.frames import DroppedLines, LoggedLine
from taskmq.model.history.logs import LONGEST_LINE
from taskmq.model.units import storable
from taskmq.run.context import Context
from taskmq.run.log_capture import PrintedText

# More than is kept, so that nothing is cut before the worker redacts it.
_LONGEST: Final = 2 * LONGEST_LINE


class ChildLines:
    """A `LineSink` for the lines of the current run.

    Args:
        tell: writes a frame, in order.
        most: maximum of lines of a run.
    """

    def __init__(self, tell: Callable[[LoggedLine | DroppedLines], None], *, most: int) -> None:
        self._tell = tell
        self._most = most
        # Reentrant: a finaliser may log while this thread holds it.
        self._lock = threading.RLock()
        self._context: Context | None = None
        self._printed = PrintedText(longest=_LONGEST)
        self._count = 0

    def open(self, context: Context) -> None:
        """Accept lines of this run, and of no other."""
        with self._lock:
            self._count = 0
            self._printed = PrintedText(longest=_LONGEST)
            self._context = context

    def finish(self) -> None:
        """Accept no more lines of the ended run."""
        with self._lock:
            if (context := self._context) is None:
                return
            for stream, level, text in self._printed.end():
                self.add(context, level, stream, text)
            self._context = None
            if (dropped := self._count - self._most) > 0:
                self._tell(DroppedLines(dropped))

    def is_wanted(self, context: Context) -> bool:
        """See `LineSink`."""
        return context is self._context

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        """See `LineSink`."""
        with self._lock:
            if context is not self._context:
                # Its run ended after the check.
                return
            self._count += 1
            if self._count <= self._most:
                self._tell(LoggedLine(level, storable(logger), storable(message[:_LONGEST])))

    def write(self, context: Context, level: int, stream: str, text: str) -> None:
        """See `LineSink`."""
        with self._lock:
            if context is self._context:
                for line in self._printed.lines(stream, level, text):
                    self.add(context, level, stream, line)
