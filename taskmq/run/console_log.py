"""The log on a process's standard error, and its formatter, which keeps records apart.

A process calls `begin_console_log` before it imports the app and `keep_console_log` afterwards. During the import the
handler is `logging.lastResort`, so that `logging.basicConfig` of the app has its usual effect. It moves to the root
logger only if the app has not set up a handler for the console, so no line is written twice.
"""

import logging
import os
import sys
from typing import Any, Final

from taskmq.model.telemetry.plain_text import escape_line, indent_lines

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"
_OFF: Final = frozenset({"0", "off", "no", "false"})


class DetailText(str):
    """A multi-line text at the end of a message, such as a stack: `LineFormatter` keeps its lines."""

    __slots__ = ()


class LineFormatter(logging.Formatter):
    """A formatter whose records cannot forge others: one line each, and the lines of tracebacks are indented.

    Control characters and line ends in messages are written as escapes. Use it for the app's own handlers, too: job
    ids and messages of errors are texts of clients.

        handler.setFormatter(taskmq.LineFormatter("%(asctime)s %(message)s"))
        logging.basicConfig(handlers=[handler])
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line, followed by indented details."""
        message = record.getMessage()
        detail = _detail(record, message)
        record.message = message[: len(message) - len(detail)].rstrip("\n")
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        parts = [escape_line(self.formatMessage(record))]
        if record.exc_info and not record.exc_text:
            # Cached for other handlers, like in the standard library.
            record.exc_text = self.formatException(record.exc_info)
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        parts.extend(indent_lines(text.strip("\n")) for text in (detail, record.exc_text, stack) if text)
        return "\n".join(parts)


class ConsoleFormatter(LineFormatter):
    """Formatter of taskmq's own processes; a task's line ends with its job, unless the line names the job."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        line = super().formatMessage(record)
        fields = record.__dict__
        job_id = fields.get("job_id")
        if not job_id or str(job_id) in line:
            return line
        return f"{line} [{fields['task']} job={job_id} attempt={fields['attempt']} queue={fields['queue']}]"


def begin_console_log(level: int) -> None:
    """Log from `level` on to standard error, until the app sets up logging of its own.

    Does nothing if the root logger has a handler already. With `$TASKMQ_CONSOLE_LOG=off` nothing is written.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    root.setLevel(level)
    if os.environ.get("TASKMQ_CONSOLE_LOG", "").lower() in _OFF:
        logging.lastResort = logging.NullHandler()
        return
    handler = _ConsoleHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter())
    logging.lastResort = handler


def keep_console_log() -> None:
    """Continue to log to standard error after the import of the app, unless the app logs there itself."""
    root = logging.getLogger()
    handler = logging.lastResort
    if isinstance(handler, _ConsoleHandler) and not any(map(_is_on_console, root.handlers)):
        root.addHandler(handler)


def _detail(record: logging.LogRecord, message: str) -> str:
    last = record.args[-1] if isinstance(record.args, tuple) and record.args else None
    return last if isinstance(last, DetailText) and message.endswith(last) else ""


class _ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """The handler of `begin_console_log`."""


def _is_on_console(handler: logging.Handler) -> bool:
    # Rich's handler has a console, which has the stream.
    stream: Any = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    try:
        number: int = stream.fileno()
        return any(os.path.sameopenfile(number, each) for each in (1, 2))
    except (AttributeError, OSError, ValueError):
        # It writes to memory, or is closed.
        return False
