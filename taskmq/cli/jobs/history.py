"""`taskmq job`: commands that show why a job waits, and what happened to it."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from taskmq.cli.actor import of_tenant
from taskmq.cli.exits import OK
from taskmq.cli.jobs.hints import ask_about
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.model.units import size_text

if TYPE_CHECKING:
    from taskmq.api.jobs import AttemptView, HistoryView

_HISTORY_COLUMNS: Final = ("version", "at", "kind", "state", "by", "note")
_ATTEMPT_COLUMNS: Final = (
    "attempt",
    "state",
    "started",
    "ended",
    "worker",
    "app_version",
    "processor",
    "memory",
    "error",
)


@of_tenant
def explain(job: str, /) -> int:
    """Explain what a job of the store is waiting for, when it is expected to start, and what would help."""
    found = ask_about(job, lambda api: api.jobs.explain(job))

    def row() -> dict[str, Any]:
        start = found.start
        expected: dict[str, Any] = {}
        if start is not None:
            likely, earliest, latest = (
                f"{instant:%Y-%m-%dT%H:%M:%SZ}" for instant in (start.likely, start.earliest, start.latest)
            )
            expected = {
                "position": start.position,
                "expected_start": f"{likely}, between {earliest} and {latest}",
            }
        fields = {
            "job": job,
            "state": found.state,
            "answer": found.answer,
            **expected,
            "reasons": [each for each in found.reasons if each != found.answer],
            "alternatives": [each.text for each in found.alternatives],
        }
        return {name: value for name, value in fields.items() if value}

    show_record(found, row)
    return OK


@of_tenant
def history(job: str, /) -> int:
    """List the exceptional events of a job, such as changes and cancellations: by whom, and why.

    Args:
        job: The job's id.
    """

    def row(entry: "HistoryView") -> dict[str, Any]:
        return {**msgspec.structs.asdict(entry), "at": text_of_instant(entry.at)}

    show_rows(_HISTORY_COLUMNS, ask_about(job, lambda api: api.jobs.history(job)), row)
    return OK


@of_tenant
def attempts(job: str, /) -> int:
    """List the attempts of a job.

    Args:
        job: The job's id.
    """

    def row(one: "AttemptView") -> dict[str, Any]:
        return {
            "attempt": one.attempt,
            "state": one.state,
            "started": text_of_instant(one.started),
            "ended": text_of_instant(one.ended),
            "worker": one.worker,
            "app_version": one.app_version,
            "processor": "" if one.processor_seconds is None else f"{one.processor_seconds:g} s",
            "memory": "" if one.peak_memory is None else size_text(one.peak_memory),
            "error": "" if one.error is None else f"{one.error.type}: {one.error.message}",
        }

    show_rows(_ATTEMPT_COLUMNS, ask_about(job, lambda api: api.jobs.attempts(job)), row)
    return OK
