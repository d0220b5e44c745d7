"""Capture of the log lines of runs, by a handler of the root logger, and of their output if wanted.

The context variables of a record identify its run, as for `taskmq.JobFields`, even in threads that copy them. Lines
that arrive after a run was settled belong to no run. A worker captures the lines of its own process; each process of
`executor="process"` captures its own and sends them over the pipe to the worker.
"""

import io
import logging
import os
import sys
import weakref
from typing import Any, Final, Protocol, TextIO

import msgspec

from taskmq.run.context import Context, current_context

_INFO: Final = 20
_ERROR: Final = 40
# Records about the sending of records would be endless.
_OURS: Final = ("taskmq.", "taskmq_", "pika")
_OUR_OWN: Final = "taskmq"


class CaptureSettings(msgspec.Struct, frozen=True, array_like=True):
    """Settings of the capture.

    Attributes:
        level: minimum level. Loggers keep their own levels, and records that they drop do not arrive here.
        output: whether to capture output; standard output as info, standard error as errors.
        most: maximum of lines of one run.
    """

    level: int
    output: bool = False
    most: int = 1_000


class LineSink(Protocol):
    """Receiver of lines. May be called from any thread."""

    def is_wanted(self, context: Context) -> bool:
        """Return whether lines of the run are captured."""
        ...

    def add(self, context: Context, level: int, logger: str, message: str) -> None:
        """Add a record of the run of this context."""
        ...

    def write(self, context: Context, level: int, stream: str, text: str) -> None:
        """Add printed text, in arbitrary pieces."""
        ...


class PrintedText:
    """Splits printed text in arbitrary pieces into lines.

    Args:
        longest: maximum length kept of an unfinished line.
    """

    def __init__(self, *, longest: int) -> None:
        self._longest = longest
        # Printed text after the last line end, by stream and level.
        self._begun: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        return len(self._begun)

    def lines(self, stream: str, level: int, text: str) -> list[str]:
        """Return the lines that end with this text, without blank ones."""
        *lines, rest = (self._begun.pop((stream, level), "") + text).split("\n")
        if rest:
            self._begun[stream, level] = rest[: self._longest]
        return [line for line in lines if line.strip()]

    def end(self) -> list[tuple[str, int, str]]:
        """Return unfinished lines with stream and level, at the end of the run."""
        begun, self._begun = self._begun, {}
        return [(stream, level, text) for (stream, level), text in begun.items() if text.strip()]


class LogCapture:
    """Passes lines to a sink from `install` to `remove`."""

    def __init__(self, sink: LineSink, settings: CaptureSettings) -> None:
        self._handler = _Handler(sink, settings.level)
        self._sink = sink
        self._takes_output = settings.output
        self._printed: list[_Printed] = []
        # A fork has neither the sink's threads nor its locks, and does not own the other end of the sink's pipe.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_Removal(self))

    def install(self) -> None:
        """Start to capture log lines of this process's runs."""
        logging.getLogger().addHandler(self._handler)
        if self._takes_output:
            for name, level in (("stdout", _INFO), ("stderr", _ERROR)):
                printed = _Printed(getattr(sys, name), self._sink, name, level)
                self._printed.append(printed)
                setattr(sys, name, printed)

    def remove(self) -> None:
        """Stop. May be called twice."""
        logging.getLogger().removeHandler(self._handler)
        for printed in self._printed:
            # Other code may have replaced it since.
            if getattr(sys, printed.stream_name) is printed:
                setattr(sys, printed.stream_name, printed.stream)
        self._printed.clear()


class _Removal:
    """Removes a capture, if it still exists."""

    def __init__(self, capture: LogCapture) -> None:
        self._capture = weakref.ref(capture)

    def __call__(self) -> None:
        if (capture := self._capture()) is not None:
            capture.remove()


class _Handler(logging.Handler):
    """Handler of records that belong to a run."""

    def __init__(self, sink: LineSink, level: int) -> None:
        super().__init__(level)
        self._sink = sink
        self._formatter = logging.Formatter()

    def createLock(self) -> None:  # noqa: N802 - the standard library's name
        # The sink has its own; a lock held while user code's `__str__` runs could deadlock.
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record without the standard library's lock, which that has needed since Python 3.13."""
        kept: Any = self.filter(record)
        if kept:
            # Since Python 3.12 a filter may return another record.
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return bool(kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Add the record if it belongs to a run; never raises."""
        context = current_context.get()
        if context is None or context.is_settled or record.name == _OUR_OWN or record.name.startswith(_OURS):
            return
        if not self._sink.is_wanted(context):
            return
        try:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{self._formatter.formatException(record.exc_info)}"
            self._sink.add(context, record.levelno, record.name, message)
        except Exception:  # noqa: BLE001 - the standard library's rule for handlers: the program goes on
            self.handleError(record)


class _Printed(io.TextIOBase):
    """A standard stream that also passes on what runs write. Everything is still written to the stream itself."""

    def __init__(self, stream: TextIO, sink: LineSink, name: str, level: int) -> None:
        self.stream = stream
        self.stream_name = name
        self._sink = sink
        self._level = level

    def __getattr__(self, name: str) -> Any:
        # Methods that only some streams have, such as `reconfigure`, are the stream's own.
        return getattr(self.stream, name)

    def write(self, text: str, /) -> int:
        written = self.stream.write(text)
        context = current_context.get()
        if context is not None and not context.is_settled and self._sink.is_wanted(context):
            self._sink.write(context, self._level, self.stream_name, text)
        return written

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        """Leave the stream open. Python calls this on release, when the stream may be closed already."""
        if not getattr(self.stream, "closed", False):
            super().close()

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
        """The stream's own buffer; bytes written there are not captured."""
        return self.stream.buffer
