"""Errors of calls that send jobs."""

from taskmq.errors.base import TaskMQError


class SendError(TaskMQError):
    """Raised when a task was not sent, or when that is unknown (`PublishUnknown` only)."""


class Unroutable(SendError):
    """Raised when the broker has no queue of this name; nothing was sent."""

    def __init__(self, queue: str, hint: str = "start a worker for it, or declare it first") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker: {hint}")
        self.queue = queue


class BrokerUnavailable(SendError):
    """Raised when the broker could not be reached before the deadline; nothing was sent.

    Attributes:
        is_unanswered: whether the first attempt to connect has no answer yet, so that more time may help.
    """

    is_unanswered: bool = False


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
        quota: a text about the quota.
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
        self.quota: str = f"{whose} has reached its quota of {most:g} {what}"
        super().__init__(f"task {task}: {self.quota}; try again {when}")
        self.tenant: str = tenant
        self.user: str | None = user
        self.limit: str = limit
        self.most: float = most
        self.retry_after: float | None = retry_after


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
    """Raised when arguments do not match their task's signature, or a signal's value its form."""
