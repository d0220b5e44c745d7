"""Records of a job's end for the state, guards and reports; and log lines of failures."""

import logging
from typing import Any

from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.errors import EncodeError, InvalidOption, ResultTooLarge
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON
from taskmq.model.outcome import Dead, type_name
from taskmq.model.states import JobState
from taskmq.model.topology import logical_queue
from taskmq.run.console_log import DetailText
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import LogErrors
from taskmq.worker.settlement.error_text import ErrorTexts

_log = logging.getLogger("taskmq.worker")


class EndRecords:
    """Creates the records of one worker.

    Args:
        worker: its name.
        result_limit: maximum bytes of an encoded result.
    """

    def __init__(self, *, worker: str, clock: Clock, result_limit: int) -> None:
        self._worker = worker
        self._clock = clock
        self._result_limit = result_limit

    def record(
        self,
        attempt: Attempt,
        state: JobState,
        *,
        content_type: str = "",
        value: bytes = b"",
        error: ErrorRecord | None = None,
    ) -> ResultRecord:
        """Create the record of the job's end, now."""
        return ResultRecord(
            job_id=attempt.job_id,
            task=attempt.envelope.task,
            state=state,
            attempt=attempt.envelope.attempt,
            content_type=content_type,
            value=value,
            error=error,
            started=attempt.started,
            finished=self._clock.now_ms(),
            worker=self._worker,
        )

    def encode_result(
        self, task: Task[..., Any], value: object, content_type: str | None
    ) -> tuple[str, bytes, Dead | None]:
        """Return the content type and bytes of a result, empty if none is kept; or the reason why it has none.

        Args:
            content_type: of the job's message.
        """
        if task.plan.result is False:
            return "", b"", None
        content_type = content_type or JSON
        try:
            encoded = task.returns.encode(value, content_type)
        except (EncodeError, InvalidOption) as error:
            # The task may have been defined before its annotations could be resolved.
            return "", b"", Dead("result", EncodeError(f"the result of task {task.name}: {error}"))
        except BaseException as error:  # noqa: BLE001 - the result's own class, which may do anything
            words = f"the result of task {task.name} raised {type_name(error)} when it was written"
            return "", b"", Dead("result", EncodeError(words))
        if len(encoded) > self._result_limit:
            too_large = ResultTooLarge(task.name, size=len(encoded), limit=self._result_limit)
            return "", b"", Dead("result", too_large)
        return content_type, encoded, None


class FailureLog:
    """Logs failures of attempts, at the level of detail that the worker is configured for."""

    def __init__(self, said: LogErrors, texts: ErrorTexts) -> None:
        self._said = said
        self._texts = texts

    def note_retry(self, attempt: Attempt, wait: int, error: BaseException) -> None:
        """Log that an attempt failed and another follows `wait` milliseconds later."""
        self._note(attempt, f"retry in {wait / 1000:g} s", error, has_traceback=False)

    def note_outage(self, attempt: Attempt, wait: int, error: BaseException) -> None:
        """Log that an outage interrupted a run, and that the job runs again `wait` milliseconds later."""
        self._note(attempt, f"interrupted, goes on in {wait / 1000:g} s", error, has_traceback=False)

    def note_death(self, attempt: Attempt, outcome: Dead) -> None:
        """Log that an attempt failed and no other follows."""
        # For other reasons, the traceback is the worker's own.
        self._note(attempt, f"dead ({outcome.reason})", outcome.error, has_traceback=outcome.reason == "error")

    def _note(self, attempt: Attempt, what: str, error: BaseException, *, has_traceback: bool) -> None:
        envelope, said = attempt.envelope, self._said
        shows_traceback = said == "traceback" and (has_traceback or _log.isEnabledFor(logging.DEBUG))
        is_plain = shows_traceback and self._texts.is_plain(error)
        _log.warning(
            "job %s of task %s, attempt %d: %s: %s%s",
            attempt.job_id,
            envelope.task,
            envelope.attempt,
            what,
            type_name(error) if said == "type" else " ".join(self._texts.summary(error).split()),
            DetailText(f"\n{self._texts.traceback_of(error)}" if shows_traceback and not is_plain else ""),
            exc_info=error if is_plain else None,
            # A refused job has had no run whose fields the record could use.
            extra={
                "job_id": attempt.job_id,
                "task": envelope.task,
                "attempt": envelope.attempt,
                "queue": logical_queue(attempt.delivery.queue),
            },
        )
