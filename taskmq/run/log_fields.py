"""Which job a log record belongs to: `job_id`, `task`, `attempt` and `queue` on every record of the standard library.

Worker processes install it; nothing has to be configured for `%(job_id)s` in a format, or for a formatter that
writes all of a record's attributes. Without a task the four are empty strings.

The fields are taken when a record is made, in the task's own context: also in threads that copy it, such as
`asyncio.to_thread`. What a job has begun and left behind keeps its fields; taskmq's own records lose them once the
job is settled, since a connection that was opened during a job is not the job's. They give way to
`extra={"task": ...}` of the program's own.
"""

import logging
from typing import Any, Final

from taskmq.run.context import current_context

__all__ = ["JobFields", "install_job_fields"]

_FIELDS: Final = ("job_id", "task", "attempt", "queue")
_NONE: Final = ("", "", "", "")

_Values = tuple[str, str, int | str, str]


def install_job_fields() -> None:
    """Have every log record of this process carry the fields from now on. May be called twice.

    Where another record factory is in force it goes on making the records, and they are given the fields.
    """
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        logging.setLogRecordFactory(_JobRecord)
    elif factory is not _JobRecord and not isinstance(factory, _Adding):
        logging.setLogRecordFactory(_Adding(factory))


class JobFields(logging.Filter):
    """Gives the fields to what passes through a handler or logger of one's own: it lets everything pass.

    For configurations that replace the record factory, and for programs that are no workers:

        {"filters": {"job": {"()": "taskmq.JobFields"}}, "handlers": {"file": {"filters": ["job"], ...}}}
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Give `record` the fields that it does not have yet; always true."""
        _give(record, _values(record.name))
        return True


class _JobRecord(logging.LogRecord):
    """A record with the fields.

    They are no items of its dictionary before it is formatted: the standard library refuses an `extra` that is there
    already, and `task` and `queue` are words that programs use.
    """

    __slots__ = ("_job",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._job = _values(self.name)

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there.
        if name in _FIELDS:
            return self._job[_FIELDS.index(name)]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def getMessage(self) -> str:  # noqa: N802 - the standard library's name
        # Every formatter calls this first, and reads the dictionary next.
        _give(self, self._job)
        return super().getMessage()


class _Adding:
    """Another factory's records with the fields."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._factory(*args, **kwargs)
        _give(record, _values(record.name))
        return record


def _values(logger: str) -> _Values:
    context = current_context.get()
    if context is None or (context.is_settled and logger.startswith(("taskmq.", "taskmq_"))):
        return _NONE
    return context.job_id, context.task, context.attempt, context.queue


def _give(record: logging.LogRecord, values: _Values) -> None:
    fields = record.__dict__
    for name, value in zip(_FIELDS, values, strict=True):
        fields.setdefault(name, value)
