"""Conditions and how they are joined, as frozen values."""

import glob
import hashlib
import re
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.states import JobState
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.schedules.triggers import Trigger

__all__ = [
    "AllOf",
    "AnyOf",
    "BrokerUrl",
    "Condition",
    "Expression",
    "FileArrives",
    "JobEnds",
    "MessageComes",
    "Part",
    "QueueMessageComes",
    "TimeComes",
    "all_of",
    "amqp",
    "any_of",
    "conditions_of",
    "file",
    "is_met",
    "job",
    "message",
    "rule_of",
]

_ENDS: Final = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
_TOPIC_BYTES: Final = 255
_MOST_PREFETCH: Final = 65_535
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class JobEnds(msgspec.Struct, frozen=True):
    """A job of one of these tasks ends in one of these states."""

    tasks: tuple[str, ...]
    states: tuple[JobState, ...]

    def describe(self) -> str:
        return f"a job of {_either(self.tasks)} has {'ended ' if len(self.states) > 1 else ''}{_either(self.states)}"


class FileArrives(msgspec.Struct, frozen=True):
    """A file that the pattern fits is there, and complete.

    Attributes:
        done: what the name of the file beside it ends with that says so; "" where none does.
        stable: for so many ms its size and time have to stay the same.
    """

    pattern: str
    done: str
    stable: int

    def describe(self) -> str:
        said = f"a file {self.pattern} is there"
        if self.stable:
            said += f", unchanged for {self.stable / 1000:g} s"
        return f"{said}, with its {self.done} beside it" if self.done else said


class MessageComes(msgspec.Struct, frozen=True):
    """A message is published to the exchange under a routing key that one of the patterns fits."""

    patterns: tuple[str, ...]
    exchange: str

    def describe(self) -> str:
        return f"a message {_either(self.patterns)} has come over {self.exchange}"

    def fits(self, routing_key: str) -> bool:
        """Whether one of the patterns does, as a topic exchange has it."""
        words = routing_key.split(".")
        return any(_fits(pattern.split("."), words) for pattern in self.patterns)


class BrokerUrl(str):
    """The URL of a broker, which shows neither user nor password wherever it is shown."""

    __slots__ = ()

    @property
    def address(self) -> str:
        """The URL without user, password and options."""
        scheme, _, rest = str.__str__(self).partition("://")
        return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"

    def __repr__(self) -> str:
        return repr(self.address)


class QueueMessageComes(msgspec.Struct, frozen=True):
    """A message comes to a queue of RabbitMQ, of this app's broker or of another one.

    Attributes:
        url: the broker; None: the app's own.
        queue: its name; "": one of the reaction's own.
        exchange: what the queue is bound to; "": it is there already, and taken as it is.
        keys: the routing keys it is bound under.
        prefetch: how many messages are in hand at once.
    """

    url: BrokerUrl | None
    queue: str
    exchange: str
    keys: tuple[str, ...]
    prefetch: int

    def describe(self) -> str:
        said = f"a message has come to the queue {self.queue}" if self.queue else "a message has come"
        if self.exchange:
            said += f" over the exchange {self.exchange} with the key {_either(self.keys)}"
        return said if self.url is None else f"{said} at {self.url.address}"


class TimeComes(msgspec.Struct, frozen=True):
    """A schedule is due."""

    trigger: Trigger

    def describe(self) -> str:
        return f"it is due {self.trigger.describe()}"


Condition = JobEnds | FileArrives | MessageComes | QueueMessageComes | TimeComes


class AllOf(msgspec.Struct, frozen=True):
    """All of the parts."""

    parts: "tuple[Expression, ...]"

    def describe(self) -> str:
        return " and ".join(_inner(part) for part in self.parts)


class AnyOf(msgspec.Struct, frozen=True):
    """One of the parts."""

    parts: "tuple[Expression, ...]"

    def describe(self) -> str:
        return " or ".join(_inner(part) for part in self.parts)


Expression = Condition | AllOf | AnyOf
Part = Expression | Trigger
"""What `all_of` and `any_of` take; a trigger of `taskmq.schedules.triggers` means that it is due."""


def job(*tasks: object, state: str | Collection[str] = "succeeded") -> JobEnds:
    """Make a condition that a job of these tasks ends.

    Args:
        tasks: tasks of the same app, or their names.
        state: `succeeded`, `failed` or `cancelled`, or several of them.

    Raises:
        InvalidOption: no task, or a state in which no job ends.
    """
    names = tuple(name if isinstance(name, str) else str(getattr(name, "name", "")) for name in tasks)
    if not names or not all(names):
        raise InvalidOption("a job of which task? Give tasks, or their names")
    states: list[JobState] = []
    for said in [state] if isinstance(state, str) else state:
        try:
            found = JobState(said)
        except ValueError:
            found = JobState.UNKNOWN
        if not found.is_final:
            raise InvalidOption(f"state={said!r}: a job ends as {_either(_ENDS)}")
        states.append(found)
    if not states:
        raise InvalidOption(f"state=(): a job ends as {_either(_ENDS)}")
    return JobEnds(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(states)))


def file(pattern: str, *, done: str = "", stable: Duration | None = None) -> FileArrives:
    """Make a condition that a file arrives.

    Args:
        pattern: as a shell has them; `**` stands for any number of folders.
        done: the file is complete once another one of its name and this is there, such as ".done", and not older.
        stable: or once its size and time have been the same for so long; default 5 seconds without `done`.

    Raises:
        InvalidOption: a value that cannot be.
    """
    if not pattern or "\0" in pattern:
        raise InvalidOption(f"file {pattern!r}: a path, perhaps with * in it")
    if "/" in done or "\0" in done:
        raise InvalidOption(f"file {pattern!r}: done={done!r} is what a name ends with, such as '.done'")
    if done and not glob.has_magic(pattern) and pattern.endswith(done):
        raise InvalidOption(f"file {pattern!r}: this is a done={done!r} itself")
    if stable is None:
        stable = 0 if done else 5
    wait = to_ms(parse_duration(stable, what="stable"))
    if not wait and not done:
        raise InvalidOption(
            f"file {pattern!r}: stable={stable!r} says nothing about when it is complete; or say done="
        )
    return FileArrives(pattern, done, wait)


def message(*patterns: str, exchange: str = "amq.topic") -> MessageComes:
    """A message comes over a topic exchange.

    Args:
        patterns: of routing keys: words with dots between them, `*` for one word, `#` for any number.
        exchange: its name; declared where it is not there.

    Raises:
        InvalidOption: a value that cannot be.
    """
    if not patterns or not exchange:
        raise InvalidOption("a message with which routing key, over which exchange?")
    for name in (*patterns, exchange):
        if not name or not name.isprintable() or len(name.encode()) > _TOPIC_BYTES:
            raise InvalidOption(f"{name!r}: a text of 1 to {_TOPIC_BYTES} bytes that can be printed")
    for pattern in patterns:
        if any(len(word) > 1 and ("*" in word or "#" in word) for word in pattern.split(".")):
            raise InvalidOption(f"pattern {pattern!r}: * and # stand for whole words")
    return MessageComes(tuple(dict.fromkeys(patterns)), exchange)


def amqp(
    url: str | None = None,
    *,
    queue: str = "",
    exchange: str = "",
    keys: str | Collection[str] = "#",
    prefetch: int = 100,
) -> QueueMessageComes:
    """A message comes to a queue of another system's, on this app's broker or on another one.

    Args:
        url: such as `amqp://user:password@crm/vhost`; default the app's own broker.
        queue: one that is there already; with `exchange=`, the name of one that is declared for the reaction.
        exchange: one that is there already; a durable quorum queue is declared and bound to it.
        keys: the routing keys that it is bound under; a topic exchange takes patterns.
        prefetch: how many messages a beat has in hand until their jobs are confirmed, 1 to 65,535.

    Raises:
        InvalidOption: a value that cannot be.
    """
    names = (keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys))
    if not queue and not exchange:
        raise InvalidOption("a message from which queue? Give queue=, or exchange= for a queue of the reaction's own")
    if not names:
        raise InvalidOption("keys=(): under which routing key is the queue bound?")
    for name in (queue, exchange, *names):
        if not name.isprintable() or len(name.encode()) > _TOPIC_BYTES:
            raise InvalidOption(f"{name!r}: a text of at most {_TOPIC_BYTES} bytes that can be printed")
    if not 1 <= prefetch <= _MOST_PREFETCH:
        raise InvalidOption(f"prefetch={prefetch}: 1 to {_MOST_PREFETCH} messages")
    # Not shown: the part before a misplaced "://" may be a password.
    if url is not None and not url.startswith(("amqp://", "amqps://")):
        raise InvalidOption("amqp(): the URL begins with amqp:// or amqps://")
    broker = None if url is None else BrokerUrl(url)
    return QueueMessageComes(broker, queue, exchange, names if exchange else (), prefetch)


def all_of(*parts: Part) -> AllOf:
    """All of them have happened since the last time, in whatever order.

    Raises:
        InvalidOption: fewer than two, or something else than a condition or a trigger.
    """
    return AllOf(_read(parts, "all_of"))


def any_of(*parts: Part) -> AnyOf:
    """One of them has happened.

    Raises:
        InvalidOption: as `all_of`.
    """
    return AnyOf(_read(parts, "any_of"))


def conditions_of(expression: Expression) -> tuple[Condition, ...]:
    """The conditions, from left to right: their places are their numbers."""
    return tuple(_walk(expression))


def is_met(expression: Expression, come: AbstractSet[int]) -> bool:
    """Whether the conditions of these numbers are enough."""
    return _is_met(expression, come, iter(range(len(conditions_of(expression)))))


def rule_of(expression: Expression, debounce: int) -> str:
    """Tells an expression from others: equal ones have the same, in every process."""
    said = _ADDRESS.sub("", f"{expression!r} {debounce}")
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _is_met(expression: Expression, come: AbstractSet[int], numbers: Iterator[int]) -> bool:
    if not isinstance(expression, AllOf | AnyOf):
        return next(numbers) in come
    # Each part is asked, as each has its numbers.
    met = [_is_met(part, come, numbers) for part in expression.parts]
    return all(met) if isinstance(expression, AllOf) else any(met)


def _fits(pattern: list[str], words: list[str]) -> bool:
    # Which of the words may be the next one, after each part of the pattern.
    places = {0}
    for part in pattern:
        if part == "#":
            places = set(range(min(places), len(words) + 1))
        else:
            places = {at + 1 for at in places if at < len(words) and part in ("*", words[at])}
        if not places:
            return False
    return len(words) in places


def _walk(expression: Expression) -> Iterator[Condition]:
    if isinstance(expression, AllOf | AnyOf):
        for part in expression.parts:
            yield from _walk(part)
    else:
        yield expression


def _read(parts: tuple[Part, ...], what: str) -> tuple[Expression, ...]:
    if len(parts) < 2:
        raise InvalidOption(f"{what} takes at least two conditions")
    found: list[Expression] = []
    for part in parts:
        if isinstance(part, Condition | AllOf | AnyOf):
            found.append(part)
        elif callable(getattr(part, "next_after", None)):
            found.append(TimeComes(part))
        else:
            raise InvalidOption(
                f"{what}: {part!r} is no condition: use job(), file(), message(), amqp(), or a trigger of "
                "taskmq.schedules.triggers"
            )
    return tuple(found)


def _inner(part: Expression) -> str:
    return f"({part.describe()})" if isinstance(part, AllOf | AnyOf) else part.describe()


def _either(names: Collection[str]) -> str:
    *before, last = [str(name) for name in names]
    return f"{', '.join(before)} or {last}" if before else last
