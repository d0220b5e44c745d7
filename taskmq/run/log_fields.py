"""Fields of a log record's job: `job_id`, `task`, `attempt` and `queue` on every record of the standard library.

Worker processes install them; `%(job_id)s` in a format, or a formatter that writes all attributes, needs no
configuration. Without a task the four are empty strings.

The fields are set when a record is made, in the task's own context, even in threads that copy it, such as those of
`asyncio.to_thread`. Background work that a job leaves behind keeps its fields; taskmq's own records lose them once
the job is settled, because a connection that was opened during a job is not the job's. They yield to `extra={"task":
...}` of the program's own.
"""

import logging
from typing import Any, Final

from taskmq.run.context import current_context

_FIELDS: Final = ("job_id", "task", "attempt", "queue")
_NONE: Final = ("", "", "", "")

_Values = tuple[str, str, int | str, str]


def install_job_fields() -> None:
    """Add the fields to every log record of this process from now on. May be called twice.

    Another record factory continues to make the records, and the fields are added to them.
    """
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        logging.setLogRecordFactory(_JobRecord)
    elif factory is not _JobRecord and not isinstance(factory, _Adding):
        logging.setLogRecordFactory(_Adding(factory))


class JobFields(logging.Filter):
    """Adds the fields to the records of a handler or logger: it lets everything pass.

    For configurations that replace the record factory, and for programs that are not workers:

        {"filters": {"job": {"()": "taskmq.JobFields"}}, "handlers": {"file": {"filters": ["job"], ...}}}
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the missing fields to `record`; always true."""
        _give(record, _values(record.name))
        return True


class _JobRecord(logging.LogRecord):
    """A record with the fields.

    They are not items of its dictionary before it is formatted: the standard library refuses an `extra` with an
    existing name, and programs use `task` and `queue`.
    """

    __slots__ = ("_job",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._job = _values(self.name)

    def __getattr__(self, name: str) -> Any:
        # Only for missing attributes.
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
