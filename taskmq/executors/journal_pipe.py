"""What a child process says while its task runs, and how its worker takes it.

The worker has the connection to the state and the child a pipe to the worker. So the child's journal sends its news
up, and asks for what it saves and reads; the worker's journal of the same run does it. One frame each:

    News                    no reply
    BeginRun, SaveValue     one Reply each, one after the other
    Answer                  the last frame of the run
"""

import pickle
from typing import assert_never

import msgspec

from taskmq.errors import TaskMQError
from taskmq.run.journal import RunJournal

__all__ = ["BeginRun", "News", "Reply", "SaveValue", "Told", "take"]


class News(msgspec.Struct, array_like=True, tag="news"):
    """What the task has reported: see `Journal`."""

    done: float
    total: float | None
    note: str
    details: bytes | None


class BeginRun(msgspec.Struct, array_like=True, tag="begin"):
    """What have earlier runs saved?

    Attributes:
        number: identifies the reply.
    """

    number: int


class SaveValue(msgspec.Struct, array_like=True, tag="save"):
    """Keep this for later runs."""

    number: int
    name: str
    value: bytes


Told = News | BeginRun | SaveValue


class Reply(msgspec.Struct, array_like=True, tag="reply"):
    """Answers the child process that a record was written, or why not.

    Attributes:
        error: pickled; empty when it was.
    """

    number: int
    token: int = 0
    values: dict[str, bytes] = {}
    error: bytes = b""


async def take(told: Told, journal: RunJournal) -> Reply | None:
    """Do what a child says, in the journal of its run; the reply that it waits for, if it does."""
    try:
        match told:
            case News(done=done, total=total, note=note, details=details):
                journal.take(done=done, total=total, note=note, details=details)
                return None
            case BeginRun(number=number):
                run = await journal.abegin()
                return Reply(number, run.token, run.values)
            case SaveValue(number=number, name=name, value=value):
                await journal.asave(name, value)
                return Reply(number)
            case _:
                assert_never(told)
    except TaskMQError as error:
        return Reply(0 if isinstance(told, News) else told.number, error=pickle.dumps(error))
