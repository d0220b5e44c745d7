"""Conditions of reactions, as frozen values."""

import glob
import re
from collections.abc import Collection
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.runs.records import RunState
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.schedules.triggers import Trigger

_ENDS: Final = tuple(state for state in JobState if state in TERMINAL)
_RUN_ENDS: Final = tuple(state for state in RunState if state not in (RunState.QUEUED, RunState.RUNNING))
_TOPIC_BYTES: Final = 255
_MOST_PREFETCH: Final = 65_535


class JobEnds(msgspec.Struct, frozen=True):
    """Condition: a job of one of these tasks ends in one of these states."""

    tasks: tuple[str, ...]
    states: tuple[JobState, ...]

    def describe(self) -> str:
        return f"a job of {_either(self.tasks)} has {'ended ' if len(self.states) > 1 else ''}{_either(self.states)}"


class WorkflowRunEnds(msgspec.Struct, frozen=True):
    """Condition: a run of a workflow ends in one of these states; in the name, `*` stands for any text."""

    workflow: str
    states: tuple[RunState, ...]

    def describe(self) -> str:
        return f"a run of {self.workflow} has {'ended ' if len(self.states) > 1 else ''}{_either(self.states)}"

    def is_met_by(self, workflow: str, state: RunState) -> bool:
        """Whether a run of the workflow that ends in this state meets it."""
        pattern = ".*".join(map(re.escape, self.workflow.split("*")))
        return state in self.states and re.fullmatch(pattern, workflow, re.DOTALL) is not None


class FileArrives(msgspec.Struct, frozen=True):
    """Condition: a file that matches the pattern exists and is complete.

    Attributes:
        done: suffix of the companion file that marks it as complete; "" if none is needed.
        stable: time in ms for which its size and modification time have to stay the same.
    """

    pattern: str
    done: str
    stable: int

    def describe(self) -> str:
        text = f"a file {self.pattern} has arrived"
        if self.stable:
            text += f", unchanged for {self.stable / 1000:g} s"
        return f"{text}, with its {self.done} file" if self.done else text


class MessageComes(msgspec.Struct, frozen=True):
    """Condition: a message is published to the exchange with a routing key that matches one of the patterns."""

    patterns: tuple[str, ...]
    exchange: str

    def describe(self) -> str:
        return f"a message {_either(self.patterns)} has arrived over {self.exchange}"

    def matches(self, routing_key: str) -> bool:
        """Whether one of the patterns matches, by the rules of a topic exchange."""
        words = routing_key.split(".")
        return any(_matches(pattern.split("."), words) for pattern in self.patterns)


class BrokerUrl(str):
    """The URL of a broker, whose representation hides user and password."""

    __slots__ = ()

    @property
    def address(self) -> str:
        """URL without user, password and options."""
        scheme, _, rest = str.__str__(self).partition("://")
        return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"

    def __repr__(self) -> str:
        return repr(self.address)


class QueueMessageComes(msgspec.Struct, frozen=True):
    """Condition: a message arrives in a RabbitMQ queue, on this app's broker or another one.

    Attributes:
        url: the broker; None: the app's own.
        queue: name of the queue; "": a queue declared for the reaction.
        exchange: exchange that the queue is bound to; "": the queue exists and is used as it is.
        keys: routing keys of the binding.
        prefetch: most unsettled messages at a time.
    """

    url: BrokerUrl | None
    queue: str
    exchange: str
    keys: tuple[str, ...]
    prefetch: int

    def describe(self) -> str:
        text = f"a message has arrived in the queue {self.queue}" if self.queue else "a message has arrived"
        if self.exchange:
            text += f" over the exchange {self.exchange} with the key {_either(self.keys)}"
        return text if self.url is None else f"{text} at {self.url.address}"


class TimeComes(msgspec.Struct, frozen=True):
    """Condition: a schedule is due."""

    trigger: Trigger

    def describe(self) -> str:
        return f"it is due {self.trigger.describe()}"


Condition = JobEnds | WorkflowRunEnds | FileArrives | MessageComes | QueueMessageComes | TimeComes


def job(*tasks: object, state: str | Collection[str] = "succeeded") -> JobEnds:
    """Build the condition that a job of these tasks ends.

    Args:
        tasks: tasks of the same app, or their names.
        state: one or several of `succeeded`, `failed` and `cancelled`; stored jobs also end as `expired`, `skipped`
            and `upstream_failed`.

    Raises:
        InvalidOption: no task is given, or no job ends in a given state.
    """
    names = tuple(name if isinstance(name, str) else str(getattr(name, "name", "")) for name in tasks)
    if not names or not all(names):
        raise InvalidOption("job(): give tasks, or their names")
    states: list[JobState] = []
    for name in [state] if isinstance(state, str) else state:
        try:
            found = JobState(name)
        except ValueError:
            found = JobState.UNKNOWN
        if not found.is_final:
            raise InvalidOption(f"state={name!r}: a job ends as {_either(_ENDS)}")
        states.append(found)
    if not states:
        raise InvalidOption(f"state=(): a job ends as {_either(_ENDS)}")
    return JobEnds(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(states)))


def run(workflow: str, state: str | Collection[str] = "succeeded") -> WorkflowRunEnds:
    """Build the condition that a run of a workflow ends.

    Args:
        workflow: name of the workflow, in which `*` stands for any text.
        state: one or several of `succeeded`, `failed` and `cancelled`.

    Raises:
        InvalidOption: no workflow is given, or no run ends in a given state.
    """
    if not workflow or not workflow.isprintable():
        raise InvalidOption(f"run({workflow!r}): give the name of a workflow, in which * stands for any text")
    names = [state] if isinstance(state, str) else list(state)
    if not names or not set(names) <= set(_RUN_ENDS):
        raise InvalidOption(f"run({workflow!r}): state={state!r}: a run ends as {_either(_RUN_ENDS)}")
    return WorkflowRunEnds(workflow, tuple(dict.fromkeys(map(RunState, names))))


def file(pattern: str, *, done: str = "", stable: Duration | None = None) -> FileArrives:
    """Build the condition that a file arrives.

    Args:
        pattern: a shell pattern; `**` stands for any number of folders.
        done: a suffix such as ".done". The file is complete when a file of its name with this suffix exists and is
            not older.
        stable: time for which its size and modification time must not change; default: 5 seconds without `done`.

    Raises:
        InvalidOption: a value is invalid.
    """
    if not pattern or "\0" in pattern:
        raise InvalidOption(f"file {pattern!r}: give a path, which may contain *")
    if "/" in done or "\0" in done:
        raise InvalidOption(f"file {pattern!r}: done={done!r}: give a suffix of a name, such as '.done'")
    if done and not glob.has_magic(pattern) and pattern.endswith(done):
        raise InvalidOption(f"file {pattern!r}: the pattern itself ends with done={done!r}")
    if stable is None:
        stable = 0 if done else 5
    wait = to_ms(parse_duration(stable, what="stable"))
    if not wait and not done:
        raise InvalidOption(
            f"file {pattern!r}: stable={stable!r} does not tell when it is complete; give a longer time or done="
        )
    return FileArrives(pattern, done, wait)


def message(*patterns: str, exchange: str = "amq.topic") -> MessageComes:
    """Build the condition that a message arrives over a topic exchange.

    Args:
        patterns: patterns of routing keys: words separated by dots, `*` for one word, `#` for any number.
        exchange: name of the exchange; declared if it does not exist.

    Raises:
        InvalidOption: a value is invalid.
    """
    if not patterns or not exchange:
        raise InvalidOption("message(): give a routing key and an exchange")
    for name in (*patterns, exchange):
        if not name or not name.isprintable() or len(name.encode()) > _TOPIC_BYTES:
            raise InvalidOption(f"{name!r}: give 1 to {_TOPIC_BYTES} bytes of printable text")
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
    """Build the condition that a message arrives in a queue of another system, on this app's broker or another one.

    Args:
        url: broker URL such as `amqp://user:password@crm/vhost`; default: the app's own broker.
        queue: an existing queue; with `exchange=`, the name of the queue to declare for the reaction.
        exchange: an existing exchange, to which a durable quorum queue is declared and bound.
        keys: routing keys of the binding; patterns for a topic exchange.
        prefetch: most messages that a beat holds until their jobs are confirmed, 1 to 65,535.

    Raises:
        InvalidOption: a value is invalid.
    """
    names = (keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys))
    if not queue and not exchange:
        raise InvalidOption("amqp(): give queue=, or exchange= for a queue declared for the reaction")
    if not names:
        raise InvalidOption("keys=(): give at least one routing key for the binding")
    for name in (queue, exchange, *names):
        if not name.isprintable() or len(name.encode()) > _TOPIC_BYTES:
            raise InvalidOption(f"{name!r}: give at most {_TOPIC_BYTES} bytes of printable text")
    if not 1 <= prefetch <= _MOST_PREFETCH:
        raise InvalidOption(f"prefetch={prefetch}: give 1 to {_MOST_PREFETCH} messages")
    # The message omits the URL: the part before a misplaced "://" may be a password.
    if url is not None and not url.startswith(("amqp://", "amqps://")):
        raise InvalidOption("amqp(): the URL must start with amqp:// or amqps://")
    broker = None if url is None else BrokerUrl(url)
    return QueueMessageComes(broker, queue, exchange, names if exchange else (), prefetch)


def _matches(pattern: list[str], words: list[str]) -> bool:
    # Indexes of the words that may match next, after each part of the pattern.
    indexes = {0}
    for part in pattern:
        if part == "#":
            indexes = set(range(min(indexes), len(words) + 1))
        else:
            indexes = {at + 1 for at in indexes if at < len(words) and part in ("*", words[at])}
        if not indexes:
            return False
    return len(words) in indexes


def _either(names: Collection[str]) -> str:
    *before, last = [str(name) for name in names]
    return f"{', '.join(before)} or {last}" if before else last
