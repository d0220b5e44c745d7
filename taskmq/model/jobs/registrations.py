"""Registrations of tasks, for processes without their code: names, queues, and schemas of arguments. Pure.

A registration is kept for each form that a task had, with the times of its first and last report; during a deploy
there are two. A registration by a scheduler for its own app takes precedence over one from the broker, where others
may publish, too. So no message makes a server accept a call that the app refuses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage

LONGEST_SCHEMA: Final = 65_536
"""Maximum bytes of a task's schema; a larger one is omitted."""
TASKS_TOLD: Final = "task.told"
"""Topic on which workers describe their tasks."""
VERSION: Final = 1
_LONGEST: Final = 262_144
_STALE: Final = 1_800_000

Origin = Literal["app", "broker"]
"""Source of a registration: `app`: a scheduler, for the app it runs; `broker`: a message claimed to be a worker's."""


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a task that matter to callers who submit or inspect its jobs.

    Attributes:
        priority, delay, expires: defaults of its jobs; durations in ms.
        tenant, meta: values of its jobs; a call may add to `meta`.
        timeout: maximum seconds of a run.
        max_attempts: maximum of attempts.
        ack: `early`: it runs at most once.
        needs_code: options that derive a key from the arguments, which only the task's own code can do; so only a
            process with the code can submit its jobs.
    """

    priority: int | None = None
    delay: int | None = None
    expires: int | None = None
    tenant: str | None = None
    meta: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    timeout: float | None = None
    max_attempts: int = 1
    ack: Literal["late", "early"] = "late"
    needs_code: tuple[str, ...] = ()


class TaskRegistration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a task.

    Attributes:
        task: its name.
        queue: the default queue of its jobs.
        description: the first line of its docstring.
        positional: names of the parameters that accept positional arguments, in order.
        unnamed: number of leading parameters that are positional-only.
        rest: name of the parameter for further positional arguments (`*values`); "" if there is none.
        schema: of its arguments by name: a JSON Schema (2020-12) of an object.
    """

    task: str
    queue: str
    description: str = ""
    facts: TaskFacts = TaskFacts()
    positional: tuple[str, ...] = ()
    unnamed: int = 0
    rest: str = ""
    schema: msgspec.Raw = msgspec.Raw(b'{"type":"object"}')


class ToldTasks(msgspec.Struct, frozen=True, kw_only=True):
    """A message in which a worker describes its tasks.

    Attributes:
        v: version of the format.
        app: the app's name; schedulers of other apps ignore the message.
        worker: its name.
    """

    v: int
    app: str
    worker: str
    tasks: list[TaskRegistration]


class RegisteredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A form of a task, as a store keeps it. Times are ms since the epoch by the store's clock.

    Attributes:
        worker: the last worker that reported it.
        first, last: times of the first and last report.
    """

    registration: TaskRegistration
    origin: Origin
    worker: str
    first: int
    last: int


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(TaskRegistration)


def encode_registration(registration: TaskRegistration) -> bytes:
    """Encode a registration as stores keep it; equal forms of a task have equal texts.

    Raises:
        UnicodeEncodeError: a text cannot be encoded as UTF-8.
    """
    return _encoder.encode(registration)


def decode_registration(text: str | bytes) -> TaskRegistration:
    """Decode the output of `encode_registration`."""
    return _decoder.decode(text)


_told = msgspec.json.Decoder(ToldTasks)


def encode_told(app: str, worker: str, tasks: Iterable[TaskRegistration]) -> Iterator[bytes]:
    """Yield messages in which a worker describes its tasks, each of at most about 256 KiB."""
    part: list[TaskRegistration] = []
    size = 0
    for task in tasks:
        length = len(encode_registration(task))
        if part and size + length > _LONGEST:
            yield _encoder.encode(ToldTasks(v=VERSION, app=app, worker=worker, tasks=part))
            part, size = [], 0
        part.append(task)
        size += length
    if part:
        yield _encoder.encode(ToldTasks(v=VERSION, app=app, worker=worker, tasks=part))


def decode_told(body: bytes) -> ToldTasks:
    """Decode the descriptions of tasks in one message.

    Raises:
        MalformedMessage: it describes no tasks, or is of a later version.
    """
    try:
        told = _told.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"cannot decode the descriptions of tasks: {error}") from error
    if told.v != VERSION:
        raise MalformedMessage(
            f"the descriptions of tasks have version {told.v}; this taskmq reads version {VERSION}"
        )
    return told


def in_force(found: Sequence[RegisteredTask]) -> RegisteredTask | None:
    """Return the registration that validates calls of a task; None if there is none.

    That is the newest one of those reported within half an hour of the last report. So a deploy counts at once, and
    one that was rolled back soon does not. A scheduler's registration of its own app takes precedence over all
    others.
    """
    last = max((one.last for one in found), default=0)
    fresh = [one for one in found if one.last >= last - _STALE]
    return max(fresh, key=_rank, default=None)


def _rank(one: RegisteredTask) -> tuple[bool, int, int]:
    return one.origin == "app", one.first, one.last
