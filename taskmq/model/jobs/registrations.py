"""Tasks as their code registers them, for those who have no code: names, queues, and the schemas of arguments. Pure.

A registration is kept for each form that a task has had, with when it was first and last reported: while a deploy
goes on there are two. One that a scheduler has registered for its own app is trusted before what came over the
broker, where others may write, too: so no message makes a server accept what the app refuses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.errors import MalformedMessage

__all__ = [
    "LONGEST_SCHEMA",
    "TASKS_TOLD",
    "Origin",
    "RegisteredTask",
    "TaskFacts",
    "TaskRegistration",
    "ToldTasks",
    "decode_registration",
    "decode_told",
    "encode_registration",
    "encode_told",
    "in_force",
]

LONGEST_SCHEMA: Final = 65_536
"""Bytes of a task's schema; one that is longer is left out."""
TASKS_TOLD: Final = "task.told"
"""The topic on which workers describe their tasks."""
VERSION: Final = 1
_LONGEST: Final = 262_144
_STALE: Final = 1_800_000

Origin = Literal["app", "broker"]
"""The source: `app`: a scheduler, of the app that it was started with; `broker`: a message, said to be a
worker's."""


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a task's options matters to those who submit its jobs, or look at them.

    Attributes:
        priority, delay, expires: what a job has that says nothing else; the spans in ms.
        tenant, meta: what its jobs have, the latter beside what a call says.
        timeout: seconds that a run may take.
        max_attempts: how often it is tried.
        ack: `early`: it runs at most once.
        needs_code: options that make a key of the arguments, which only the task's own code can do: its jobs are
            submitted where that is.
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
        queue: where its jobs wait unless they say otherwise.
        description: the first line of its docstring.
        positional: the names of the parameters that may be given by position, in their order.
        unnamed: how many of those, from the first, can be given by position only.
        rest: the name of what takes all further positional arguments, `*values`; "" where nothing does.
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
    """One message of a worker.

    Attributes:
        v: version of the format.
        app: the app's name; schedulers of another one do not listen to it.
        worker: its name.
    """

    v: int
    app: str
    worker: str
    tasks: list[TaskRegistration]


class RegisteredTask(msgspec.Struct, frozen=True, kw_only=True):
    """One form of a task, as a store keeps it. Times are ms since the epoch by the store's clock.

    Attributes:
        worker: the last one that reported it.
        first, last: when it was reported first, and last.
    """

    registration: TaskRegistration
    origin: Origin
    worker: str
    first: int
    last: int


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(TaskRegistration)


def encode_registration(registration: TaskRegistration) -> bytes:
    """The registration as stores keep it; forms of a task that are the same have the same text.

    Raises:
        UnicodeEncodeError: a text has no form in UTF-8.
    """
    return _encoder.encode(registration)


def decode_registration(text: str | bytes) -> TaskRegistration:
    """What `encode_registration` has made."""
    return _decoder.decode(text)


_told = msgspec.json.Decoder(ToldTasks)


def encode_told(app: str, worker: str, tasks: Iterable[TaskRegistration]) -> Iterator[bytes]:
    """The messages in which a worker describes its tasks, of about 256 KiB at most."""
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
    """Read the descriptions of tasks in one message.

    Raises:
        MalformedMessage: it describes no tasks, or is of a later version.
    """
    try:
        told = _told.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"no tasks are described: {error}") from error
    if told.v != VERSION:
        raise MalformedMessage(
            f"the descriptions of tasks have version {told.v}; this taskmq reads version {VERSION}"
        )
    return told


def in_force(found: Sequence[RegisteredTask]) -> RegisteredTask | None:
    """The one of a task's registrations by which calls are judged; None where there is none.

    Of those that were reported within half an hour of the last it is the youngest, so that a deploy counts at once
    and one that was taken back soon does not; what a scheduler registered for its own app goes before all others.
    """
    last = max((one.last for one in found), default=0)
    fresh = [one for one in found if one.last >= last - _STALE]
    return max(fresh, key=_rank, default=None)


def _rank(one: RegisteredTask) -> tuple[bool, int, int]:
    return one.origin == "app", one.first, one.last
