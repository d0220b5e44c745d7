"""Progress and saved values of the runs of stored jobs, as workers report them and schedulers answer. Pure.

    begin (run, base)          -> fence    values that the run does not know: refused
    save (fence, number, name) -> fence    another run has begun since, or the job has another token: refused

A run begins when it first reads or saves a value. From then on only this run may save, until another one begins. A
request that arrives twice has the same effect and answer as the first.
"""

from typing import Annotated, Final

import msgspec

from taskmq.errors import MalformedMessage
from taskmq.model.states import JobState
from taskmq.model.units import InstantMs

LARGEST_SAVED: Final = 8 * 1024 * 1024
"""Maximum bytes of all saved values of a job that travel in its messages."""

NO_DETAILS: Final = msgspec.Raw(b"null")
"""Details of a run without a heartbeat, or of one without details."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Fence = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
_Topic = Annotated[str, msgspec.Meta(pattern=r"\Aworker\.saved\.[A-Za-z0-9_-]{1,64}\Z")]


class RunProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last progress of a run.

    Attributes:
        updated: time of the report, ms since the epoch by the worker's clock.
        state: `running`, or the outcome of the run.
        details: of the run's last heartbeat, as JSON; null if there were none.
    """

    done: float
    total: float | None = None
    note: Annotated[str, msgspec.Meta(max_length=500)] = ""
    updated: InstantMs
    state: JobState = JobState.RUNNING
    details: msgspec.Raw = NO_DETAILS


class SaveRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of a run to begin, or to save a value.

    Attributes:
        reply: the topic of the answer.
        number: of the request in its run, from 1; the answer repeats it.
        run: a text that no other run has.
        base: to begin: the version of the saved values in the invitation, less the signals among them.
        fence: to save: the number from the answer to the beginning; 0: the run begins.
        name, value: of the value, as JSON.
        is_reference: whether the value is a reference to one that is kept elsewhere.
    """

    reply: _Topic
    number: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    run: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    base: _Count = 0
    fence: _Fence = 0
    name: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    is_reference: bool = False


class SaveAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a `SaveRequest`.

    Attributes:
        run, number: of the request.
        fence: larger than that of every run of the job that began before; 0: refused, another run saves.
    """

    run: str
    number: int
    fence: int


class SaveHead(msgspec.Struct, frozen=True):
    """The run that may save values of a job.

    Attributes:
        version: number of saves of all runs.
        fence: of the run.
        number: of the run's last request.
    """

    version: int
    fence: int
    run: str
    number: int


NO_HEAD: Final = SaveHead(0, 0, "", 0)
"""The head of a job that no run has saved values of."""


class SavedContent(msgspec.Struct, frozen=True):
    """A saved value as JSON, or a reference to it."""

    value: bytes
    is_reference: bool = False


class SavedValues(msgspec.Struct, frozen=True):
    """The saved values of a job by name.

    Attributes:
        version: see `SaveHead`.
    """

    version: int
    values: dict[str, SavedContent]


def after_request(head: SaveHead, request: SaveRequest, *, now: int, signals: int = 0) -> SaveHead | None:
    """Return the head after a request of a run with the job's present token; None if the request is refused.

    Args:
        now: ms since the epoch; a fence is at least that, so it grows even if earlier ones were forgotten.
        signals: number of saved signals. A run may begin without the newest ones, but not without a run's values.
    """
    if request.run == head.run:
        if request.number <= head.number:
            return head
        is_save = bool(request.fence)
        return SaveHead(head.version + is_save, head.fence, head.run, request.number)
    if request.fence or request.base != head.version - signals:
        return None
    return SaveHead(head.version, max(head.fence + 1, now), request.run, request.number)


_answers: Final = msgspec.json.Decoder(list[SaveAnswer])


def encode_answers(answers: list[SaveAnswer]) -> bytes:
    return msgspec.json.encode(answers)


def decode_answers(body: bytes) -> list[SaveAnswer]:
    """Decode the answers in one announcement.

    Raises:
        MalformedMessage: it has none.
    """
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"not answers to saves: {error}") from error
