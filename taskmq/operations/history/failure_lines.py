"""Failures of all kinds as lines of one list."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from taskmq.errors import InvalidOption

FailureLane = Literal["store", "broker", "workflow"]
"""Kind of what failed: a job submitted to the store, a job sent to the broker, or a workflow."""
FailureSource = Literal["jobs", "failures", "dead letters", "workflows"]
"""Source of a failure: the store's jobs, the workers' reported failures, the broker, or the store's runs."""
Remedy = Literal["", "retry", "replay", "redrive"]
LANES: Final[tuple[FailureLane, ...]] = get_args(FailureLane)
LANE_OF: Final[Mapping[FailureSource, FailureLane]] = {
    "jobs": "store",
    "failures": "broker",
    "dead letters": "broker",
    "workflows": "workflow",
}
SOURCES: Final[frozenset[FailureSource]] = frozenset(LANE_OF)
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([0-9a-f]{27})")


class FailureChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of failures; None accepts any value. Workflows have no task, queue or error type.

    Attributes:
        lane: failures of one kind.
        task, queue, error: name of the task, logical name of the queue, type of the error.
        job: id of a job that was sent to the broker.
        since, until: start (inclusive) and end (exclusive) in ms.
    """

    lane: FailureLane | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    job: str | None = None
    since: int | None = None
    until: int | None = None


class FailureLine(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job or workflow.

    Attributes:
        id: the caller's id of the job or workflow.
        name: name of the workflow; "" for jobs.
        at: when the job ended, or when the workflow was sent (ms); None if unknown.
        event: state of a stored job. For a sent job `dead`, or `parked` if no worker could run its message.
        attempt: number of the last attempt; 0 for workflows.
        error: name of the error's type.
        message: message of the error.
        summary: type and message in one line, shortened.
        traceback: end of the traceback, if it is kept.
        reason: reason of a dead letter, see `taskmq.model.outcome.DeadReason`.
        letter: logical name of the queue that has its dead letter.
        remedy: the operation that runs it again.
        is_handled: whether it was retried or its dead letter is gone; None if unknown.
        retried_as: id of the job that repeats it.
        number: increasing number of a report in the store; otherwise 0.
    """

    lane: FailureLane
    id: str
    name: str = ""
    at: int | None
    event: str
    tenant: str = ""
    task: str = ""
    queue: str = ""
    attempt: int = 0
    worker: str = ""
    seconds: float | None = None
    error: str = ""
    message: str = ""
    summary: str = ""
    traceback: str = ""
    reason: str = ""
    letter: str | None = None
    remedy: Remedy = ""
    is_handled: bool | None = None
    retried_as: str = ""
    number: int = 0

    @property
    def cursor(self) -> "FailureCursor":
        """Position of the failure in the list, independent of other failures."""
        digest = hashlib.sha256(f"{self.lane}\0{self.id}".encode(errors="surrogatepass")).hexdigest()[:16]
        return FailureCursor(self.at or 0, f"{self.number:011x}{digest}")


class SourceGap(msgspec.Struct, frozen=True):
    """A source that could not be read, or only in part, and why."""

    source: FailureSource
    why: str


class FailuresPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of failures, newest first; `after` is the cursor of the next page, None at the end."""

    lines: list[FailureLine]
    after: str | None
    gaps: list[SourceGap]


class LettersView(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of all queues at one moment.

    Attributes:
        bounded: queues with more letters than were read.
    """

    lines: list[FailureLine]
    bounded: frozenset[str]


class FailureCursor(NamedTuple):
    """The position of a failure in the list: its time (ms), and a key among those of the same time."""

    at: int
    key: str


def sort_key(line: FailureLine) -> FailureCursor:
    """Return the position of a line, by which lines are sorted."""
    return line.cursor


def parse_cursor(text: str) -> FailureCursor:
    """Parse the `after` of a page.

    Raises:
        InvalidOption: it is not a cursor of the failures.
    """
    if (found := _CURSOR.fullmatch(text)) is None:
        raise InvalidOption(f"{text[:40]!r} is not a cursor of the failures; pass the `after` of the previous page")
    return FailureCursor(int(found[1]), found[2])
