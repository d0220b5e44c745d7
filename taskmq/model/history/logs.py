"""Lines that a job's run has logged, as workers send them and as people look for them. Pure.

    logging record -> RunLine -> up to 256 KiB of them in one message -> reports queue -> scheduler -> store

Lines count only with the token of the run that is under way, as reports do. Each run numbers its lines from 0, so
that a message which comes twice adds nothing. docs/wire.md describes the message for workers in other languages.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.envelope import LAST_INSTANT, Token
from taskmq.model.units import did_you_mean, storable

__all__ = [
    "KEPT_DAYS",
    "LEVELS",
    "LOGS_TASK",
    "LONGEST_LINE",
    "LogFilter",
    "LogPage",
    "RunLine",
    "RunLog",
    "StoredLine",
    "decode_logs",
    "encode_logs",
    "level_name",
    "read_level",
    "shortened",
    "standard_level",
]

LOGS_TASK: Final = "taskmq.logs"
"""The task that messages with lines name."""
LONGEST_LINE: Final = 8_192
"""Characters of one line; the rest is left out, and the line says so."""
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
KEPT_DAYS: Final = {10: 1, 20: 7, 30: 30, 40: 30, 50: 30}
"""For so many days lines are kept, by their level."""
_NAMES: Final = {number: name for name, number in LEVELS.items()}
_LONGEST_MESSAGE: Final = 262_144
_CUT: Final = " ... [cut]"
_LONGEST_LOGGER: Final = 200


class RunLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line: when, ms since the epoch; how bad, 10 to 50; who said it; what."""

    at: Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]
    level: Annotated[int, msgspec.Meta(ge=0, le=1_000)]
    logger: str
    message: str


class RunLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some lines of one run.

    Attributes:
        id: the store's id of the job.
        token: of its invitation.
        first: the number of the first line within the run.
    """

    id: str
    token: Token
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    worker: str = ""
    first: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    lines: Sequence[RunLine] = ()


class StoredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line as the store has it.

    Attributes:
        number: the store's own; grows, and tells where a list goes on.
        job: the store's id of the job.
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


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are looked for. What is not said does not matter.

    Attributes:
        job: the store's id of a job.
        tenant: whose jobs; "" those that have none.
        level: at least so bad.
        text: a part of the message; the case of ASCII letters does not matter.
        since, until: from this instant on, and before that one.
    """

    job: str | None = None
    tenant: str | None = None
    task: str | None = None
    attempt: int | None = None
    level: int = 0
    text: str = ""
    since: int | None = None
    until: int | None = None


class LogPage(msgspec.Struct, frozen=True):
    """One page of lines of logs, in their order.

    Attributes:
        after: where the next page begins; None where nothing more was there.
        is_bounded: the search stopped before it had looked at everything; the next page goes on from there.
    """

    lines: list[StoredLine]
    after: int | None
    is_bounded: bool = False


class _LineBatch(msgspec.Struct, frozen=True):
    logs: list[RunLog]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_LineBatch)


def standard_level(level: int) -> int:
    """The level of `LEVELS` for a level: the next one below it."""
    return min(max(level // 10 * 10, 10), 50)


def level_name(level: int) -> str:
    """The word for a level."""
    return _NAMES[standard_level(level)]


def read_level(word: str) -> int:
    """The level that a word means, in either case.

    Raises:
        InvalidOption: it means none.
    """
    level = LEVELS.get(word.lower())
    if level is None:
        raise InvalidOption(f"there is no level {word[:40]!r}: {did_you_mean(word, list(LEVELS))}")
    return level


def shortened(logger: str, message: str) -> tuple[str, str]:
    """Name and message within their limits, in UTF-8's letters only."""
    if len(message) > LONGEST_LINE:
        message = message[: LONGEST_LINE - len(_CUT)] + _CUT
    return storable(logger[:_LONGEST_LOGGER]), storable(message)


def encode_logs(logs: Sequence[RunLog]) -> Iterator[bytes]:
    """The bodies of the messages with these lines, in their order: 256 KiB at most, or one `RunLog`."""
    parts: list[bytes] = []
    size = 0
    for log in logs:
        part = _encoder.encode(log)
        if parts and size + len(part) > _LONGEST_MESSAGE:
            yield _message(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield _message(parts)


def decode_logs(body: bytes) -> list[RunLog]:
    """The lines in one message.

    Raises:
        MalformedMessage: it has none.
    """
    try:
        return _decoder.decode(body).logs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the message has no lines of a log: {type(error).__name__}: {error}") from error


def _message(parts: Sequence[bytes]) -> bytes:
    return b'{"logs":[%s]}' % b",".join(parts)
