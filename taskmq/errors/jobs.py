"""Errors of jobs and runs that were sent, and of their results."""

from taskmq.errors.base import TaskMQError


class ResultTimeout(TaskMQError, TimeoutError):
    """Raised when the job did not end within the caller's timeout; the job continues."""


class ResultExpired(TaskMQError):
    """Raised when the job has ended, but its result is no longer stored."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} has ended, but its result has expired: ask sooner, or raise result_ttl")
        self.job_id = job_id


class ResultDamaged(TaskMQError):
    """Raised when a stored large result differs in size or hash from what was written."""


class TaskFailed(TaskMQError):
    """Raised when the job failed: holds the task's error as data, never as a class of the worker's code."""

    def __init__(self, job_id: str, *, type_name: str, message: str, traceback: str, attempts: int) -> None:
        super().__init__(f"job {job_id} failed after {attempts} attempt(s): {type_name}: {message}")
        self.job_id = job_id
        self.type_name: str = type_name
        self.message: str = message
        self.traceback: str = traceback
        self.attempts = attempts


class SavedValuesFull(TaskMQError):
    """Raised when a job has no room for another saved value or signal; nothing was saved."""

    def __init__(self, job_id: str, what: str) -> None:
        super().__init__(
            f"job {job_id} has no room for {what}: it saves at most 1,000 values, signals included, of 8 MiB together"
        )
        self.job_id = job_id


class SignalTimeout(TaskMQError, TimeoutError):
    """Raised inside a task when the signal that it waits for did not come in time."""

    def __init__(self, job_id: str, signal: str) -> None:
        super().__init__(
            f"job {job_id}: the signal {signal!r} did not come in time; pass default= to continue without it"
        )
        self.job_id = job_id
        self.signal = signal


class JobCancelled(TaskMQError):
    """Raised when the job was cancelled, has expired, or its task ended it with `Ignore`."""


class JobNotFound(TaskMQError):
    """Raised when the store has no job with this id, or none of this tenant."""


class JobConflict(TaskMQError):
    """Raised when the job is not in the state that the caller expects; nothing was changed.

    Attributes:
        state, version: the job's.
        waits_for: the id of a job that it depends on and that must be retried first; "" in other conflicts.
    """

    def __init__(self, message: str, *, state: str = "", version: int = 0, waits_for: str = "") -> None:
        super().__init__(message)
        self.state = state
        self.version = version
        self.waits_for = waits_for


class OccurrenceConflict(JobConflict):
    """Raised when other jobs have the ids that occurrences would get; nothing was changed.

    Attributes:
        occurrences: schedule number, instant (ms) and run of each.
    """

    def __init__(self, occurrences: "frozenset[tuple[int, int, str]]") -> None:
        super().__init__(f"other jobs have the ids of {len(occurrences)} occurrences of schedules")
        self.occurrences = occurrences


class RunFailed(TaskMQError):
    """Raised when a step of the run has failed for good; `Run.redrive` runs failed steps again.

    Attributes:
        failures: the error's type name and message, by step name.
    """

    def __init__(self, run_id: str, failures: "dict[str, str]") -> None:
        name, error = next(iter(failures.items()), ("?", ""))
        others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(f"run {run_id}: step {name} failed: {error}{others}")
        self.run_id = run_id
        self.failures = failures


class RunNotFound(TaskMQError):
    """Raised when the store has no run with this id, or none of this tenant; old runs are deleted."""


class RunClosed(TaskMQError):
    """Raised when the batch accepts no more jobs: it was closed or cancelled, or the run is not one of a batch.

    Attributes:
        run_id: the id of the run.
    """

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class WorkflowNotFound(TaskMQError):
    """Raised when the store has no workflow of this name, tenant or version."""
