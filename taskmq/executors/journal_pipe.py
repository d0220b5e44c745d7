"""Journal frames of a child process's task, and their processing in the worker.

The worker has the connection to the state, and the child a pipe to the worker. So the child's journal sends its news
to the worker, and asks it to save and read values; the worker's journal of the same run does that. One frame each:

    News                    no reply
    BeginRun, SaveValue     one Reply each, one after the other
    Answer                  the last frame of the run
"""

import pickle
from typing import assert_never

import msgspec

from taskmq.errors import TaskMQError
from taskmq.run.journal import RunJournal


class News(msgspec.Struct, array_like=True, tag="news"):
    """News that the task reported: see `Journal`."""

    done: float
    total: float | None
    note: str
    details: bytes | None


class BeginRun(msgspec.Struct, array_like=True, tag="begin"):
    """A request for the values of earlier runs.

    Attributes:
        number: identifies the reply.
    """

    number: int


class SaveValue(msgspec.Struct, array_like=True, tag="save"):
    """A request to save a value for later runs."""

    number: int
    name: str
    value: bytes


Told = News | BeginRun | SaveValue


class Reply(msgspec.Struct, array_like=True, tag="reply"):
    """The reply to a child process that a record was written, or the error.

    Attributes:
        error: pickled; empty if there is none.
    """

    number: int
    token: int = 0
    values: dict[str, bytes] = {}
    error: bytes = b""


async def take(told: Told, journal: RunJournal) -> Reply | None:
    """Process a child's frame in the journal of its run; return the reply that the child waits for, if any."""
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
