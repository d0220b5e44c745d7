"""Every exception of taskmq.

One root, `TaskMQError`, and one class per thing a caller could do differently. Facts are attributes, the
message says what happened, to which name, and what to do. The four exceptions of `control_flow` are not
errors: a task raises them to say how its run ends, and `except TaskMQError` does not catch them.
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
    """The root of all errors of taskmq."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By arguments and facts, not by calling the constructor: its parameters are not what `args` holds.
        return rebuild, (type(self), self.args, self.__dict__)


class SendError(TaskMQError):
    """A task was not sent, or it is not known whether it was (`PublishUnknown` only)."""


class Unroutable(SendError):
    """The broker has no queue of that name; nothing was sent."""

    def __init__(self, queue: str, hint: str = "start a worker for it, or declare it first") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker: {hint}")
        self.queue = queue


class BrokerUnavailable(SendError):
    """The broker could not be reached before the deadline; nothing was sent."""


class AccessDenied(BrokerUnavailable):
    """The broker refuses this user: wrong credentials, no access to the virtual host, or a missing permission."""


class BrokerBlocked(SendError):
    """The broker takes no messages (memory or disk alarm, or a full send window); nothing was sent."""


class PublishRejected(SendError):
    """The broker refused the message, for example because the queue is full; nothing was sent."""


class PublishUnknown(SendError):
    """The confirm never came: the broker may or may not have taken the message.

    Sending again with the same job id is safe where the task is idempotent.
    """


class DuplicateJob(SendError):
    """There is a job of that unique key already; nothing was sent.

    Attributes:
        job_id: the existing job's.
    """

    def __init__(self, task: str, *, job_id: str) -> None:
        super().__init__(f"task {task}: job {job_id} has the same unique key, and has not started or ended yet")
        self.task = task
        self.job_id = job_id


class QuotaExceeded(SendError):
    """The tenant, or its user, has submitted as much to the store as it may; nothing was kept.

    Attributes:
        tenant: whose quota it is.
        user: whose, where it is that of a user of the tenant, else None.
        limit: `queued`, `a_day`, `bytes` or `rate`.
        most: what the limit is.
        retry_after: seconds after which there is room again; None where that depends on the jobs that wait.
    """

    def __init__(
        self, task: str, *, tenant: str, user: str | None, limit: str, most: float, retry_after: float | None
    ) -> None:
        whose = f"tenant {tenant!r}" if user is None else f"user {user!r} of tenant {tenant!r}"
        what = {
            "queued": "jobs waiting at a time",
            "a_day": "jobs a day",
            "bytes": "bytes of jobs a day",
            "rate": "jobs a second",
        }[limit]
        when = "once some of its jobs have begun" if retry_after is None else f"in {retry_after:.3g} s"
        super().__init__(f"task {task}: {whose} may have {most:g} {what}, and has used them up; try again {when}")
        self.tenant = tenant
        self.user = user
        self.limit = limit
        self.most = most
        self.retry_after = retry_after


class PartlySent(SendError):
    """Some calls of a `send_many` were not sent. Those after the ones that were tried were not looked at.

    Attributes:
        failures: what happened, by position in the input.
        sent: how many were confirmed.
        tried: how many of the input were tried, from its first on; the rest was not sent.
        job_ids: of those that were confirmed, in the order of the input; empty for a stream, which has given them.
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
    """Some dead letters were not sent again: they are where they were.

    Attributes:
        failure: what happened to the first of them.
        failed: how many the broker did not take.
        replayed: how many were confirmed.
    """

    def __init__(self, failure: SendError, *, failed: int, replayed: int) -> None:
        super().__init__(f"{failed} of {failed + replayed} dead letters were not replayed, the first one: {failure}")
        self.failure = failure
        self.failed = failed
        self.replayed = replayed


class TooLarge(SendError):
    """The message is larger than the limit; nothing was sent."""

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(
            f"{what} has {size:,} bytes, the limit is {limit:,}: store the data elsewhere and send a reference"
        )
        self.size = size
        self.limit = limit


class EncodeError(SendError):
    """A value has no form on the wire; nothing was sent."""


class InvalidArguments(EncodeError):
    """The arguments do not fit the task's signature."""


class ResultTimeout(TaskMQError, TimeoutError):
    """The job did not end within the time that the caller was ready to wait; it goes on."""


class ResultExpired(TaskMQError):
    """The job has ended, and its result is not kept any more."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"job {job_id} has ended, but its result is not kept any more: ask sooner, or raise result_ttl"
        )
        self.job_id = job_id


class ResultDamaged(TaskMQError):
    """The large result that is kept has another size or hash than the one that was put there."""


class TaskFailed(TaskMQError):
    """The job ended without success: the task's error as data, never as a class of the worker's code."""

    def __init__(self, job_id: str, *, type_name: str, message: str, traceback: str, attempts: int) -> None:
        super().__init__(f"job {job_id} failed after {attempts} attempt(s): {type_name}: {message}")
        self.job_id = job_id
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.attempts = attempts


class FlowFailed(TaskMQError):
    """A step of a workflow has failed for good; `Flow.redrive` tries again what has not succeeded.

    Attributes:
        failures: the error's type name and message, by the step's name.
    """

    def __init__(self, flow_id: str, failures: "dict[str, str]") -> None:
        name, error = next(iter(failures.items()), ("?", ""))
        others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(f"workflow {flow_id}: step {name} has failed: {error}{others}")
        self.flow_id = flow_id
        self.failures = failures


class FlowNotFound(TaskMQError):
    """The state does not know the workflow: its time is over, it was never sent, or the state has lost it."""


class FlowClosed(TaskMQError):
    """The batch takes no more jobs: it was closed or cancelled, or the workflow is no batch.

    Attributes:
        flow_id: the workflow's id.
    """

    def __init__(self, message: str, flow_id: str) -> None:
        super().__init__(message)
        self.flow_id = flow_id


class JobCancelled(TaskMQError):
    """The job was cancelled, has expired, or its task ended it with `Ignore`."""


class StateUnavailable(TaskMQError):
    """The state store could not be reached.

    Attributes:
        is_certain: the call has changed nothing; otherwise that is not known.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreUnavailable(TaskMQError):
    """The job store could not be reached.

    Attributes:
        is_certain: the call has changed nothing; otherwise that is not known.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreMismatch(TaskMQError):
    """The job store's tables are of another version, or its database cannot hold every text; nothing was changed."""


class StoreRefused(TaskMQError):
    """The job store has refused what it was asked for, and would again; nothing was changed.

    The message has no values: they may be arguments of tasks.
    """


class StoreWentBack(TaskMQError):
    """The job store does not know what it has confirmed, or its clock was set back: people have to look at it first.

    A standby has taken over without the last transactions, a backup was brought back, or a clock was set.
    """


class JobNotFound(TaskMQError):
    """The store has no job of that id, or none of that tenant."""


class JobConflict(TaskMQError):
    """The job is not what the caller takes it for; nothing was changed.

    Attributes:
        state, version: the job's.
        waits_for: the id of a job that it waited for, and that has to be retried first; "": it is not about that.
    """

    def __init__(self, message: str, *, state: str = "", version: int = 0, waits_for: str = "") -> None:
        super().__init__(message)
        self.state = state
        self.version = version
        self.waits_for = waits_for


class OccurrenceConflict(JobConflict):
    """Other jobs have the ids that some occurrences were to get; nothing was changed.

    Attributes:
        occurrences: by the schedule's number, the instant (ms), and the run.
    """

    def __init__(self, occurrences: "frozenset[tuple[int, int, str]]") -> None:
        super().__init__(f"other jobs have the ids of {len(occurrences)} occurrences of schedules")
        self.occurrences = occurrences


class DefinitionNotFound(TaskMQError):
    """The store has no definition of that name, or none of that tenant or version."""


class DefinitionConflict(TaskMQError):
    """The definition has another version than the caller says; nothing was changed.

    Attributes:
        version: that it has.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class NotAuthenticated(TaskMQError):
    """The caller presents no credential that is good. The message never says what is wrong with it."""


class LoginThrottled(NotAuthenticated):
    """Too many logins have failed: this one was not looked at.

    Attributes:
        retry_after: seconds to wait.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many failed logins: try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class NotPermitted(TaskMQError):
    """The caller may not do that, though they may know that it is there.

    Attributes:
        permission: what they lack.
    """

    def __init__(self, message: str, *, permission: str = "") -> None:
        super().__init__(message)
        self.permission = permission


class ConfirmationNeeded(NotPermitted):
    """The call takes the caller's password once more, or a sign-in within the last five minutes."""


class IdentityNotFound(TaskMQError):
    """There is no such tenant, user, role, session or token, or none that the caller may know of."""


class IdentityConflict(TaskMQError):
    """A tenant, user or token is not what the caller takes it for; nothing was changed.

    Attributes:
        version: the user's, where it is not the one that the caller says; 0: the conflict is about something else.
    """

    def __init__(self, message: str, *, version: int = 0) -> None:
        super().__init__(message)
        self.version = version


class LimitReached(TaskMQError):
    """A user has as many tokens, or a tenant as many alert rules or channels, as may be; nothing was kept."""

    def __init__(self, message: str, *, most: int) -> None:
        super().__init__(message)
        self.most = most


class ServerUnavailable(TaskMQError):
    """A taskmq server could not be reached, or has not answered.

    Attributes:
        is_certain: the call has changed nothing; otherwise that is not known.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class RequestRefused(TaskMQError):
    """A call of the API is refused for a reason that has no error class here.

    Attributes:
        status: of a server's answer.
        code: stable; "" where the answer is none of a taskmq server's.
    """

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class InvalidOption(TaskMQError):
    """An option of a task, a call or the app is misspelt or has a value that it cannot have."""


class InvalidFilter(InvalidOption):
    """A filter that jobs are looked for with cannot be read.

    Attributes:
        column: where in its text, from 1.
    """

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


class ScheduleNotFound(InvalidOption):
    """No schedule has that name, or none of that tenant."""


class InvalidSetting(TaskMQError):
    """A setting in the environment, a file or on the command line is unknown or cannot be read."""


class DuplicateTask(TaskMQError):
    """Two functions were registered under one task name."""


class UnsupportedFeature(TaskMQError):
    """The feature needs something that this app has not configured or this broker does not have."""


class AppNotFound(TaskMQError):
    """The target of a command is not an importable module with an app."""


class QueueMissing(TaskMQError):
    """The queue that was named does not exist."""

    def __init__(self, queue: str, hint: str = "") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker{f': {hint}' if hint else ''}")
        self.queue = queue
        self.hint = hint


class TopologyMismatch(TaskMQError):
    """A queue or exchange exists with other properties than taskmq declares; nothing was changed."""


class MalformedMessage(TaskMQError):
    """A message is not a task: its body cannot be read, or is of a version this taskmq does not know."""


class UnknownTask(TaskMQError):
    """A message names a task that this worker has not registered."""


class TaskTimeout(TaskMQError):
    """The task ran longer than its `timeout`."""


class RunSuperseded(TaskMQError):
    """Another run of the same job has begun: this one must do nothing more, and cannot save any more."""


class LockTimeout(TaskMQError, TimeoutError):
    """A lock was not to be had within the time that the caller was ready to wait.

    Attributes:
        name: the lock's.
        owner: who has it.
    """

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"lock {name!r} was not to be had in time: {owner} has it")
        self.name = name
        self.owner = owner


class LockLost(TaskMQError):
    """A lock was lost while its block went on: another holder may have acted meanwhile.

    Attributes:
        name: the lock's.
        token: that of this holder; the next one's is larger.
    """

    def __init__(self, name: str, token: int) -> None:
        super().__init__(f"lock {name!r} (token {token}) was lost: it could not be renewed in time")
        self.name = name
        self.token = token


class SoftTimeout(TaskTimeout):
    """Raised inside a task that runs longer than its `soft_timeout`: it may clean up, and end in its own way.

    One that ends with it counts as timed out; one that catches it goes on until its `timeout`.
    """

    def __init__(self, message: str = "the task ran longer than its soft_timeout") -> None:
        super().__init__(message)


class MemoryExceeded(TaskMQError):
    """The task's process took more memory than the task's `resources` say, and was killed.

    Attributes:
        limit: bytes.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class ResultTooLarge(TaskMQError):
    """What a task returned is larger than the worker's `--result-limit`; it was not stored.

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
    """The process that ran the task ended before the task did.

    Attributes:
        starts: how often the job was started, where it is dead because no start had an end.
    """

    def __init__(self, message: str, *, starts: int | None = None) -> None:
        super().__init__(message)
        self.starts = starts
