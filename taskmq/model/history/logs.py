"""Log lines of a job's run, as workers send them and as people search them. Pure.

    logging record -> RunLine -> up to 256 KiB of them in one message -> reports queue -> scheduler -> store

Like reports, lines of stored jobs count only with the token of the current run. Each run numbers its lines from 0, so
that a duplicate of a message adds nothing. docs/wire.md describes the message for workers in other languages.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.envelope import Token
from taskmq.model.history.sent_runs import SentJobFacts, encode_batches
from taskmq.model.units import InstantMs, did_you_mean, storable

LOGS_TASK: Final = "taskmq.logs"
"""Task name of messages that carry log lines."""
LONGEST_LINE: Final = 8_192
"""Maximum of characters in one line; longer ones are cut and marked."""
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
KEPT_DAYS: Final = {10: 1, 20: 7, 30: 30, 40: 30, 50: 30}
"""Days for which lines are kept, by level."""
_NAMES: Final = {number: name for name, number in LEVELS.items()}
_CUT: Final = " ... [cut]"
_LONGEST_LOGGER: Final = 200


class RunLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line: time in ms since the epoch, level from 10 to 50, logger, message."""

    at: InstantMs
    level: Annotated[int, msgspec.Meta(ge=0, le=1_000)]
    logger: str
    message: str


class RunLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Consecutive lines of one run.

    Attributes:
        id: the store's id of the job; of a sent job, its name.
        token: of its invitation; of a sent job, the start of the run in ms.
        sent: facts of a sent job; None: the job is stored.
        first: the number of the first line within the run.
    """

    id: str
    token: Token
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    worker: str = ""
    first: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    lines: Sequence[RunLine] = ()
    sent: SentJobFacts | None = None


class StoredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line as the store returns it.

    Attributes:
        number: assigned by the store, increasing; the cursor of lists.
        job: the store's id of the job.
        run, step, child: of the job of a step, its run, its step and its number among the children; "" and -1: none.
    """

    number: int
    at: int
    level: int
    logger: str
    message: str
    job: str
    attempt: int
    worker: str
    tenant: str
    task: str
    queue: str
    run: str = ""
    step: str = ""
    child: int = -1


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that lines must match. An unset field matches everything.

    Attributes:
        job: the store's id of a job.
        is_sent: whether `job` is a sent job.
        run: the store's id of a run: lines of all its jobs.
        step: with `run`, the only step, with its children; "": all.
        tenant: tenant of the jobs; "": jobs without one.
        level: minimum level.
        text: a part of the message; the case of ASCII letters does not matter.
        since, until: half-open range of instants.
    """

    job: str | None = None
    is_sent: bool = False
    run: str | None = None
    step: str = ""
    tenant: str | None = None
    task: str | None = None
    attempt: int | None = None
    level: int = 0
    text: str = ""
    since: int | None = None
    until: int | None = None


class LogPage(msgspec.Struct, frozen=True):
    """A page of log lines, in order.

    Attributes:
        after: cursor of the next page; None on the last one.
        is_bounded: whether the search stopped at its limit before the end; the next page continues there.
    """

    lines: list[StoredLine]
    after: int | None
    is_bounded: bool = False


class _LineBatch(msgspec.Struct, frozen=True):
    logs: list[RunLog]


_decoder = msgspec.json.Decoder(_LineBatch)


def standard_level(level: int) -> int:
    """Return the standard level at or below a level."""
    return min(max(level // 10 * 10, 10), 50)


def level_name(level: int) -> str:
    """Return the name of a level."""
    return _NAMES[standard_level(level)]


def read_level(word: str) -> int:
    """Return the level of a name, in either case.

    Raises:
        InvalidOption: no level has this name.
    """
    level = LEVELS.get(word.lower())
    if level is None:
        raise InvalidOption(f"unknown level {word[:40]!r}: {did_you_mean(word, list(LEVELS))}")
    return level


def shorten_line(logger: str, message: str) -> tuple[str, str]:
    """Return logger and message, cut to their limits and encodable as UTF-8."""
    if len(message) > LONGEST_LINE:
        message = message[: LONGEST_LINE - len(_CUT)] + _CUT
    return storable(logger[:_LONGEST_LOGGER]), storable(message)


def encode_logs(logs: Sequence[RunLog]) -> Iterator[bytes]:
    """Yield message bodies with these lines, in order: at most 256 KiB each, or one `RunLog`."""
    return (body for _, body in encode_batches("logs", logs))


def decode_logs(body: bytes) -> list[RunLog]:
    """Decode the lines of one message.

    Raises:
        MalformedMessage: it has none, or cannot be read.
    """
    try:
        return _decoder.decode(body).logs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"cannot decode the log lines: {type(error).__name__}: {error}") from error
