"""Contracts for the state that workers, callers and beats share.

A `State` belongs to one event loop, like a broker. Each feature has its own small store; nothing here is
the sole truth for a job that the broker has confirmed.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from taskmq.states import JobState

__all__ = [
    "BegunRun",
    "CheckpointStore",
    "DelayStore",
    "DiagnosableState",
    "ErrorRecord",
    "Lease",
    "LeaseStore",
    "OccurrenceStore",
    "ProgressRecord",
    "ProgressStore",
    "ResultRecord",
    "ResultStore",
    "Revocation",
    "RevocationStore",
    "StartStore",
    "State",
    "TakenMessage",
    "Timekeeper",
    "WaitingMessage",
]


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task's error as data."""

    type_name: str
    message: str
    traceback: str


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job ended. Times are milliseconds since the epoch.

    Attributes:
        state: one of the terminal states.
        value: the encoded return value of a job that succeeded.
        error: of a job that is dead; for a cancelled one, `message` is the reason.
    """

    job_id: str
    task: str
    state: JobState
    attempt: int
    content_type: str = ""
    value: bytes = b""
    error: ErrorRecord | None = None
    started: int | None = None
    finished: int
    worker: str = ""


class ResultStore(Protocol):
    """Results by job id.

    A success is never overwritten; any other record is, so that a replayed job's success counts. Storing the
    same record again changes nothing.
    """

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        """Keep `record` for `ttl` seconds; it is durable and waiters know when this returns.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def get(self, job_id: str) -> ResultRecord | None:
        """The record, or None where there is none (yet, or any more)."""
        ...

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        """The record once it is there, without polling; None after `timeout` seconds."""
        ...


class OccurrenceStore(Protocol):
    """Which occurrences of schedules were emitted, so that any number of beats emit each one once."""

    async def claim(self, occurrence: str, *, owner: str, lease: float, ttl: float) -> bool:
        """Whether `owner` is to emit `occurrence` now.

        True for the first claim, and again for anybody once `lease` seconds have passed without `complete`:
        the owner may have died before it published. Remembered for `ttl` seconds.
        """
        ...

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        """The occurrence was published and confirmed: nobody claims it within `ttl` seconds."""
        ...


class StartStore(Protocol):
    """Runs that have begun and not ended, by job: how a task that kills its workers is told from those beside it.

    Only runs of messages that were in a worker's hands before are counted here, so the first run of a job costs
    nothing. Where the state cannot be reached the job runs uncounted (fails open): the broker's delivery limit is
    the last net.
    """

    async def begin(self, job_id: str, *, ttl: float) -> int:
        """Count one more run as begun; how many have begun and not ended, this one included.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def end(self, job_id: str) -> None:
        """Forget the job's runs: one of them has ended, whatever its outcome, so they kill nobody.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a key.

    Attributes:
        token: larger than that of every earlier lease of the key, also of those that have ended.
        left: seconds until it ends by itself.
        note: what the holder has written on it.
    """

    owner: str
    token: int
    left: float
    note: str = ""


class LeaseStore(Protocol):
    """Keys that one owner at a time holds, for as long as the owner keeps saying so; by the store's clock.

    A holder that was silent for too long has lost the key, whatever it believes. So what it does in the holder's
    name carries the token, and who receives that refuses smaller ones than it has seen. A holder may trust its lease
    for its time from the moment *before* it asked. Every method raises `StateUnavailable` when the store cannot be
    reached; then it may have been done all the same.
    """

    async def take(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        """Take a free key for `seconds`: the token, or the lease that is in the way, be it the same owner's."""
        ...

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        """Hold the key for `seconds` from now on, with another note unless it is None.

        False, and nothing is changed, where the lease of that token has ended.
        """
        ...

    async def release(self, key: str, *, token: int) -> None:
        """End the lease of that token; nothing where it has ended."""
        ...

    async def look(self, key: str) -> Lease | None:
        """The lease that there is now; None where the key is free."""
        ...


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a job is, as its task has said last.

    Attributes:
        attempt: that said so.
        done: how much is done, in the task's own unit.
        total: of how much; None when the task does not know.
        note: a few words for people.
        started: when that run began, ms since the epoch by its worker's clock.
        updated: when it said so, by the same clock.
    """

    job_id: str
    attempt: int
    done: float
    total: float | None = None
    note: str = ""
    started: int
    updated: int


class ProgressStore(Protocol):
    """The last progress of each job, for people to look at.

    Where the state cannot be reached a job goes on without (fails open); a later report tells all that an earlier
    one did.
    """

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        """Keep `record` for `ttl` seconds in the place of the job's last one.

        Nothing is changed where the last one is of a run that began later and whose attempt is not lower: that
        run is the job's, and this one was left behind.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def find(self, job_id: str) -> ProgressRecord | None:
        """The job's last record; None where there is none (yet, or any more).

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...


class BegunRun(msgspec.Struct, frozen=True):
    """A run that a `CheckpointStore` knows.

    Attributes:
        token: grows with every run that begins, of the same job.
        values: what the job's runs have saved, by name.
    """

    token: int
    values: dict[str, bytes]


class CheckpointStore(Protocol):
    """What the runs of a job have saved for those that come after them.

    The last run that has begun is the job's: only that one saves. A task that saves counts on it, so a store that
    cannot be reached is an error of the task's (fails closed).
    """

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        """Begin a run, and with it keep what is saved for another `ttl` seconds.

        The token is larger than that of every run of the job that began before, also when what those have saved was
        forgotten meanwhile: it is at least the time in milliseconds. None: a run of a later attempt has begun. A
        first attempt always begins: a dead letter that is replayed starts there, and goes on from what was saved.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        """Keep `value` under `name`, in the place of the last one, and everything for another `ttl` seconds.

        Durable as far as the store is when this returns. False, and nothing is changed, where another run has begun
        since the one that has `token`, or the job was forgotten.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def forget(self, job_id: str, *, token: int) -> None:
        """Forget what the job has saved, unless another run has begun since the one that has `token`.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A job that somebody has cancelled.

    Attributes:
        place: grows with each one of a store; where to go on reading.
        until: when it is forgotten, ms since the epoch.
    """

    job_id: str
    reason: str
    place: int
    until: int


class RevocationStore(Protocol):
    """Jobs that were cancelled and may not have ended yet, for every worker to see.

    Where the state cannot be reached a cancelled job may run (fails open): a worker that stopped its work because it
    does not know would do more harm.
    """

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        """Remember for `ttl` seconds that the job is cancelled; a second time changes nothing but how long.

        Raises:
            StateUnavailable: the store could not be reached; it may have been remembered or not.
        """
        ...

    async def since(self, place: int, *, limit: int) -> list[Revocation]:
        """Up to `limit` that hold still and came after `place`, in their order; from the first one on after 0.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that waits for its time in a `DelayStore`: what `taskmq.broker.Outgoing` has.

    Attributes:
        queue: a physical queue's name.
        due: milliseconds since the epoch.
    """

    job_id: str
    task: str
    queue: str
    due: int
    body: bytes
    content_type: str
    enqueued: int | None = None
    root: str | None = None
    headers: dict[str, str | int] = {}
    priority: int | None = None


class TakenMessage(msgspec.Struct, frozen=True):
    """A message in the hands of somebody who is about to publish it.

    Attributes:
        token: the store's own, new with every `put` and `swap` of the job.
    """

    message: WaitingMessage
    token: str


class DelayStore(Protocol):
    """Messages that wait for their time in the state instead of at the broker: these can be listed and changed.

    One message per job: a second `put` of the same job id replaces the first. A message leaves by `take`, publish,
    confirm and only then `done`: whoever dies in between leaves it to be taken again once the lease is over, so it
    can come twice and is never lost. It has no time to live. Every method but `listen` raises `StateUnavailable`
    when the store cannot be reached.
    """

    async def put(self, message: WaitingMessage) -> None:
        """Keep `message` until it is taken and done; durable as far as the store is when this returns."""
        ...

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        """Up to `limit` messages whose `due` is not after `now` (ms), the earliest first.

        None of them is given to anybody else within `lease` seconds.
        """
        ...

    async def done(self, taken: Sequence[TakenMessage]) -> None:
        """Forget messages that were taken and published; what was put or swapped in meanwhile stays."""
        ...

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        """Let others take at once what was taken and not published."""
        ...

    async def next_due(self) -> int | None:
        """When the earliest message is due that can be taken (ms); None when there is none."""
        ...

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` on this loop when `next_due` may have become earlier; the function that ends it.

        May call for nothing, and may miss a call while the store cannot be reached: look once a second as well.
        """
        ...

    async def count(self) -> int:
        """How many messages there are, those that are taken and not done among them."""
        ...

    async def find(self, job_id: str) -> WaitingMessage | None:
        """The message of a job, taken or not; None where there is none."""
        ...

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        """Up to `limit` messages, taken or not, the earliest due first; of one task, of some physical queues."""
        ...

    async def cancel(self, job_id: str) -> bool:
        """Take a message away; False where none waits (any more) or it is on its way already."""
        ...

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        """Put `changed` in the place of `found`, which is of the same job.

        False, and nothing is changed, where `found` does not wait any more, as it was found, or is on its way.
        """
        ...


class State(Protocol):
    """One shared state, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """The URL without its password."""
        ...

    @property
    def results(self) -> ResultStore: ...

    @property
    def occurrences(self) -> OccurrenceStore: ...

    @property
    def starts(self) -> StartStore: ...

    @property
    def revocations(self) -> RevocationStore: ...

    @property
    def delays(self) -> DelayStore: ...

    @property
    def progress(self) -> ProgressStore: ...

    @property
    def checkpoints(self) -> CheckpointStore: ...

    @property
    def leases(self) -> LeaseStore: ...

    async def aclose(self) -> None:
        """Let go. May be called twice."""
        ...


@runtime_checkable
class DiagnosableState(Protocol):
    """A state that can tell what is wrong with its server."""

    async def diagnose(self) -> list[tuple[Literal["ok", "warning", "problem"], str, str, str]]:
        """Findings: level, what it is about, what was found, and the remedy ("" where none is needed).

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...


@runtime_checkable
class Timekeeper(Protocol):
    """A state on a server with a clock of its own."""

    async def server_now_ms(self) -> int:
        """That clock's time, as ms since the epoch.

        Raises:
            StateUnavailable: the state could not be reached.
        """
        ...
