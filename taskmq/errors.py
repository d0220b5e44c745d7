"""Exceptions of taskmq.

The root is `TaskMQError`; there is one class for each case that callers may handle differently. Facts are attributes;
the message says what happened, to which name, and what to do. The four exceptions of `control_flow` are not errors: a
task raises them to say how its run ends, and `except TaskMQError` does not catch them.
"""

from typing import Any

from taskmq.control_flow import Ignore, Reject, Retry, Snooze, TaskControl, rebuild

__all__ = [
    "AccessDenied",
    "AppNotFound",
    "BrokerBlocked",
    "BrokerUnavailable",
    "ConfirmationNeeded",
    "DefinitionConflict",
    "DefinitionNotFound",
    "DuplicateJob",
    "DuplicateTask",
    "EncodeError",
    "FlowClosed",
    "FlowFailed",
    "FlowNotFound",
    "IdentityConflict",
    "IdentityNotFound",
    "Ignore",
    "InvalidArguments",
    "InvalidFilter",
    "InvalidOption",
    "InvalidSetting",
    "InvalidWorkflow",
    "JobCancelled",
    "JobConflict",
    "JobNotFound",
    "LimitReached",
    "LockLost",
    "LockTimeout",
    "LoginThrottled",
    "MalformedMessage",
    "MemoryExceeded",
    "NotAuthenticated",
    "NotPermitted",
    "OccurrenceConflict",
    "PartlyReplayed",
    "PartlySent",
    "PublishRejected",
    "PublishUnknown",
    "QueueMissing",
    "QuotaExceeded",
    "ReactionNotFound",
    "Reject",
    "RequestRefused",
    "ResultDamaged",
    "ResultExpired",
    "ResultTimeout",
    "ResultTooLarge",
    "Retry",
    "RunSuperseded",
    "ScheduleNotFound",
    "SendError",
    "ServerUnavailable",
    "Snooze",
    "SoftTimeout",
    "StateUnavailable",
    "StoreMismatch",
    "StoreRefused",
    "StoreUnavailable",
    "StoreWentBack",
    "TaskControl",
    "TaskFailed",
    "TaskMQError",
    "TaskTimeout",
    "TooLarge",
    "TopologyMismatch",
    "UnknownTask",
    "Unroutable",
    "UnsupportedFeature",
    "WorkerLost",
]


class TaskMQError(Exception):
    """Base of all errors of taskmq."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By arguments and facts, since the constructor's parameters differ from `args`.
        return rebuild, (type(self), self.args, self.__dict__)


class SendError(TaskMQError):
    """Raised when a task was not sent, or when that is unknown (`PublishUnknown` only)."""


class Unroutable(SendError):
    """Raised when the broker has no queue of this name; nothing was sent."""

    def __init__(self, queue: str, hint: str = "start a worker for it, or declare it first") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker: {hint}")
        self.queue = queue


class BrokerUnavailable(SendError):
    """Raised when the broker could not be reached before the deadline; nothing was sent."""


class AccessDenied(BrokerUnavailable):
    """Raised when the broker refuses the user: wrong credentials, no access to the virtual host, or no permission."""


class BrokerBlocked(SendError):
    """Raised when the broker accepts no messages (memory or disk alarm, or full send window); nothing was sent."""


class PublishRejected(SendError):
    """Raised when the broker rejects the message, for example because the queue is full; nothing was sent."""


class PublishUnknown(SendError):
    """Raised when the confirm never arrived: the broker may or may not have accepted the message.

    Sending again with the same job id is safe if the task is idempotent.
    """


class DuplicateJob(SendError):
    """Raised when a job with this unique key exists already; nothing was sent.

    Attributes:
        job_id: the id of the existing job.
    """

    def __init__(self, task: str, *, job_id: str) -> None:
        super().__init__(f"task {task}: job {job_id} has the same unique key, and has not started or ended yet")
        self.task = task
        self.job_id = job_id


class QuotaExceeded(SendError):
    """Raised when the tenant, or its user, has used up a quota; nothing was stored.

    Attributes:
        tenant: the tenant.
        user: the user of the tenant whose quota it is; None if it is the tenant's.
        limit: `queued`, `a_day`, `bytes` or `rate`.
        most: the value of the limit.
        retry_after: seconds until there is room again; None if that depends on waiting jobs.
    """

    def __init__(
        self, task: str, *, tenant: str, user: str | None, limit: str, most: float, retry_after: float | None
    ) -> None:
        whose = f"tenant {tenant!r}" if user is None else f"user {user!r} of tenant {tenant!r}"
        what = {
            "queued": "waiting job{s}",
            "a_day": "job{s} per day",
            "bytes": "byte{s} of jobs per day",
            "rate": "job{s} per second",
        }[limit].format(s="" if most == 1 else "s")
        when = "when some of its jobs have started" if retry_after is None else f"in {max(retry_after, 1):,.0f} s"
        super().__init__(f"task {task}: {whose} has reached its quota of {most:g} {what}; try again {when}")
        self.tenant, self.user = tenant, user
        self.limit, self.most, self.retry_after = limit, most, retry_after


class PartlySent(SendError):
    """Raised when some calls of a `send_many` were not sent. Calls after the tried ones were not examined.

    Attributes:
        failures: the error by position in the input.
        sent: the number of confirmed calls.
        tried: the number of calls tried, from the first on; the rest was not sent.
        job_ids: ids of the confirmed jobs, in input order; empty for a stream, which has already yielded them.
    """

    def __init__(self, failures: "dict[int, SendError]", sent: int) -> None:
        first = min(failures)
        super().__init__(
            f"{len(failures)} of {len(failures) + sent} calls were not sent; number {first}: {failures[first]}"
        )
        self.failures = failures
        self.sent = sent
        self.tried: int = sent + len(failures)
        self.job_ids: list[str] = []


class PartlyReplayed(SendError):
    """Raised when some dead letters could not be replayed; they remain where they were.

    Attributes:
        failure: the error of the first one.
        failed: the number of letters that the broker rejected.
        replayed: the number of confirmed letters.
    """

    def __init__(self, failure: SendError, *, failed: int, replayed: int) -> None:
        super().__init__(f"{failed} of {failed + replayed} dead letters were not replayed, the first one: {failure}")
        self.failure = failure
        self.failed = failed
        self.replayed = replayed


class TooLarge(SendError):
    """Raised when the message is larger than the limit; nothing was sent."""

    def __init__(
        self, size: int, limit: int, what: str, *, remedy: str = "store the data elsewhere and send a reference"
    ) -> None:
        super().__init__(f"{what} has {size:,} bytes, the limit is {limit:,}: {remedy}")
        self.size = size
        self.limit = limit


class EncodeError(SendError):
    """Raised when a value cannot be encoded; nothing was sent."""


class InvalidArguments(EncodeError):
    """Raised when the arguments do not match the task's signature."""


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
        self.type_name, self.message, self.traceback = type_name, message, traceback
        self.attempts = attempts


class FlowFailed(TaskMQError):
    """Raised when a step of a workflow has failed for good; `Flow.redrive` runs failed steps again.

    Attributes:
        failures: the error's type name and message, by step name.
    """

    def __init__(self, flow_id: str, failures: "dict[str, str]") -> None:
        name, error = next(iter(failures.items()), ("?", ""))
        others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(f"workflow {flow_id}: step {name} failed: {error}{others}")
        self.flow_id = flow_id
        self.failures = failures


class FlowNotFound(TaskMQError):
    """Raised when a workflow or a run is unknown: it was never stored or sent, has expired, or was lost."""


class FlowClosed(TaskMQError):
    """Raised when the batch accepts no more jobs: it was closed or cancelled, or the workflow is not a batch.

    Attributes:
        flow_id: the id of the workflow.
    """

    def __init__(self, message: str, flow_id: str) -> None:
        super().__init__(message)
        self.flow_id = flow_id


class JobCancelled(TaskMQError):
    """Raised when the job was cancelled, has expired, or its task ended it with `Ignore`."""


class StateUnavailable(TaskMQError):
    """Raised when the state could not be reached.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreUnavailable(TaskMQError):
    """Raised when the job store could not be reached.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreMismatch(TaskMQError):
    """Raised when the tables of the job store have another version, or its database cannot hold all text."""


class StoreRefused(TaskMQError):
    """Raised when the job store rejects a request for good; nothing was changed.

    The message contains no values, since they may be arguments of tasks.
    """


class StoreWentBack(TaskMQError):
    """Raised when the job store lost what it had confirmed, or its clock went back: an operator must intervene.

    A standby took over without the last transactions, a backup was restored, or a clock was set back.
    """


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


class DefinitionNotFound(TaskMQError):
    """Raised when the store has no definition of this name, tenant or version."""


class DefinitionConflict(TaskMQError):
    """Raised when the definition does not have the version that the caller expects; nothing was changed.

    Attributes:
        version: the current version.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class NotAuthenticated(TaskMQError):
    """Raised when the caller has no valid credential. The message never says why a credential is invalid."""


class LoginThrottled(NotAuthenticated):
    """Raised when too many logins have failed: this one was not checked.

    Attributes:
        retry_after: seconds to wait.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many failed logins: try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class NotPermitted(TaskMQError):
    """Raised when the caller may see a thing, but lacks the permission to do this to it.

    Attributes:
        permission: the missing permission.
    """

    def __init__(self, message: str, *, permission: str = "") -> None:
        super().__init__(message)
        self.permission = permission


class ConfirmationNeeded(NotPermitted):
    """Raised when the call needs the caller's password again, or a sign-in within the last five minutes."""


class IdentityNotFound(TaskMQError):
    """Raised when there is no such tenant, user, role, session or token, or none visible to the caller."""


class IdentityConflict(TaskMQError):
    """Raised when a tenant, user or token is not in the state that the caller expects; nothing was changed.

    Attributes:
        version: the user's current version, if the caller gave another one; 0 in other conflicts.
    """

    def __init__(self, message: str, *, version: int = 0) -> None:
        super().__init__(message)
        self.version = version


class LimitReached(TaskMQError):
    """Raised when a user has the most tokens, or a tenant the most alert rules or channels; nothing was stored."""

    def __init__(self, message: str, *, most: int) -> None:
        super().__init__(message)
        self.most = most


class ServerUnavailable(TaskMQError):
    """Raised when a taskmq server could not be reached, or did not answer.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class RequestRefused(TaskMQError):
    """Raised when the API refuses a call for a reason without an error class.

    Attributes:
        status: HTTP status of the answer.
        code: stable error code; "" if the answer is not a taskmq server's.
    """

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class InvalidOption(TaskMQError):
    """Raised when an option of a task, a call or the app is misspelled or has an invalid value."""


class InvalidFilter(InvalidOption):
    """Raised when a filter of jobs cannot be parsed.

    Attributes:
        column: position of the error in the text, from 1.
    """

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


class InvalidWorkflow(InvalidOption):
    """Raised when a workflow has faults, which the message lists line by line; nothing was stored."""


class ScheduleNotFound(InvalidOption):
    """Raised when no schedule has this name, or none of this tenant."""


class ReactionNotFound(InvalidOption):
    """Raised when no reaction has this name, or a tenant is selected."""


class InvalidSetting(TaskMQError):
    """Raised when a setting in the environment, a file or on the command line is unknown or invalid."""


class DuplicateTask(TaskMQError):
    """Raised when two functions are registered under one task name."""


class UnsupportedFeature(TaskMQError):
    """Raised when a feature needs something that the app does not configure or the broker lacks."""


class AppNotFound(TaskMQError):
    """Raised when the target of a command is not an importable module with an app."""


class QueueMissing(TaskMQError):
    """Raised when the named queue does not exist."""

    def __init__(self, queue: str, hint: str = "") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker{f': {hint}' if hint else ''}")
        self.queue = queue
        self.hint = hint


class TopologyMismatch(TaskMQError):
    """Raised when a queue or exchange exists with other properties than taskmq declares; nothing was changed."""


class MalformedMessage(TaskMQError):
    """Raised when a message is not a task: its body cannot be decoded, or has an unknown version."""


class UnknownTask(TaskMQError):
    """Raised when a message names a task that this worker has not registered."""


class TaskTimeout(TaskMQError):
    """Raised when the task ran longer than its `timeout`."""


class RunSuperseded(TaskMQError):
    """Raised when another run of the same job has started: this run must stop, and can save nothing more."""


class LockTimeout(TaskMQError, TimeoutError):
    """Raised when a lock could not be acquired within the caller's timeout.

    Attributes:
        name: the lock's name.
        owner: the current holder.
    """

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"lock {name!r} could not be acquired in time: {owner} holds it")
        self.name = name
        self.owner = owner


class LockLost(TaskMQError):
    """Raised when a lock was lost inside its block: another holder may have acted in the meantime.

    Attributes:
        name: the lock's name.
        token: this holder's fencing token; the next holder's is larger.
    """

    def __init__(self, name: str, token: int) -> None:
        super().__init__(f"lock {name!r} (token {token}) was lost: it could not be renewed in time")
        self.name = name
        self.token = token


class SoftTimeout(TaskTimeout):
    """Raised inside a task that runs longer than its `soft_timeout`, so that it can clean up and end.

    If the task ends with it, it counts as timed out; if it catches it, it continues until its `timeout`.
    """

    def __init__(self, message: str = "the task ran longer than its soft_timeout") -> None:
        super().__init__(message)


class MemoryExceeded(TaskMQError):
    """Raised when the task's process used more memory than its `resources` allow (`limit` bytes), and was killed."""

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class ResultTooLarge(TaskMQError):
    """Raised when a task's result is larger than the worker's `--result-limit`; it was not stored.

    Attributes:
        size, limit: bytes.
    """

    def __init__(self, task: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"the result of task {task} has {size:,} bytes, the limit is {limit:,}: store the data elsewhere and "
            "return a reference, or raise --result-limit"
        )
        self.size = size
        self.limit = limit


class WorkerLost(TaskMQError):
    """Raised when the process that ran the task ended before the task did.

    Attributes:
        starts: how often the job was started, if it is dead because no start ended.
    """

    def __init__(self, message: str, *, starts: int | None = None) -> None:
        super().__init__(message)
        self.starts = starts
