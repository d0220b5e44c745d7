"""Takes what runs of jobs of the store log: a handler of the root logger, and, if wanted, of what they print.

Whose a record is follows from the context variables that it is made in, as with `taskmq.JobFields`: also in threads
that copy them. What a run has left behind when it was settled is nobody's. Tasks of `executor="process"` log in a
process of their own, which is not heard here.
"""

import io
import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

from taskmq.model.envelope import Invitation
from taskmq.run.context import current_context, invitation_of
from taskmq.worker.run_logs.lines import RunLines

__all__ = ["LogCapture"]

_INFO: Final = 20
_ERROR: Final = 40
# Records about the sending of records would never end.
_OURS: Final = ("taskmq.", "taskmq_", "pika")

_Sink = Callable[[Invitation, int, int, str, str], None]


class LogCapture:
    """Hands lines to `RunLines` from `install` to `remove`.

    Args:
        level: records from this one on. Loggers keep their own levels: what they do not let pass does not come here.
        output: also what is printed; to standard output as info, to standard error as errors.
    """

    def __init__(self, lines: RunLines, *, level: int, output: bool) -> None:
        self._handler = _Handler(lines.add, level)
        self._write: _Sink = lines.write
        self._takes_output = output
        self._printed: list[_Printed] = []

    def install(self) -> None:
        """Begin."""
        logging.getLogger().addHandler(self._handler)
        if self._takes_output:
            for name, level in (("stdout", _INFO), ("stderr", _ERROR)):
                printed = _Printed(getattr(sys, name), self._write, name, level)
                self._printed.append(printed)
                setattr(sys, name, printed)

    def remove(self) -> None:
        """Stop. May be called twice."""
        logging.getLogger().removeHandler(self._handler)
        for printed in self._printed:
            # Somebody else may have replaced it since.
            if getattr(sys, printed.stream_name) is printed:
                setattr(sys, printed.stream_name, printed.stream)
        self._printed.clear()


class _Handler(logging.Handler):
    """Of records that belong to a run."""

    def __init__(self, sink: _Sink, level: int) -> None:
        super().__init__(level)
        self._sink = sink
        self._formatter = logging.Formatter()

    def createLock(self) -> None:  # noqa: N802 - the standard library's name
        # The sink has its own; a lock held while user code's `__str__` runs could be waited for by itself.
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """The standard library's, without the lock, which it has needed since Python 3.13."""
        kept: Any = self.filter(record)
        if kept:
            # Since Python 3.12 a filter may put another record in its place.
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return bool(kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Take the record if it is a run's; never raises."""
        context = current_context.get()
        if context is None or context.is_settled or record.name.startswith(_OURS):
            return
        invitation = invitation_of(context)
        if invitation is None:
            return
        try:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{self._formatter.formatException(record.exc_info)}"
            self._sink(invitation, context.attempt, record.levelno, record.name, message)
        except Exception:  # noqa: BLE001 - the standard library's rule for handlers: the program goes on
            self.handleError(record)


class _Printed(io.TextIOBase):
    """A standard stream that also gives away what runs write. Everything goes to the stream itself as before."""

    def __init__(self, stream: TextIO, sink: _Sink, name: str, level: int) -> None:
        self.stream = stream
        self.stream_name = name
        self._sink = sink
        self._level = level

    def write(self, text: str, /) -> int:
        written = self.stream.write(text)
        context = current_context.get()
        if context is not None and not context.is_settled and (invitation := invitation_of(context)) is not None:
            self._sink(invitation, context.attempt, self._level, self.stream_name, text)
        return written

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    @property
    def buffer(self) -> object:
        """The stream's own; what is written there is not seen."""
        return self.stream.buffer
