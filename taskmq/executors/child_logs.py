"""How a worker process and the processes under it log."""

import logging
import sys
from typing import Final

from taskmq.run.log_fields import install_job_fields

__all__ = ["ConsoleFormatter", "log_to_stderr"]

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"


def log_to_stderr(level: int) -> None:
    """Send what is logged to standard error, unless the application has set up its logging itself.

    In either case every record says which job it belongs to, see `taskmq.run.log_fields`.
    """
    install_job_fields()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter())
    logging.basicConfig(level=level, handlers=[handler])


class ConsoleFormatter(logging.Formatter):
    """One line a record; what a task logs ends with whose it is, unless the line names the job already."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        line = super().formatMessage(record)
        fields = record.__dict__
        job_id = fields.get("job_id")
        if not job_id or str(job_id) in line:
            return line
        return f"{line} [{fields['task']} job={job_id} attempt={fields['attempt']} queue={fields['queue']}]"
