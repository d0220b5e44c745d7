"""Lines that runs of jobs have logged."""

import msgspec

__all__ = [
    "LineList",
    "LineView",
]


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """A line; `log_time`, `log_level` and `log_message` are the same as `at`, `level` and `message`.

    Attributes:
        id: of the job, the store's own.
    """

    number: int
    at: str | None
    level: str
    logger: str
    message: str
    id: str
    attempt: int
    worker: str
    task: str
    queue: str
    tenant: str
    log_time: str | None
    log_level: str
    log_message: str


class LineList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of lines of logs, in their order.

    Attributes:
        next: what to say as `cursor` to go on; None where nothing more was there. Of the log of one job it is there
            also at the end: so one follows it.
        is_bounded: the search stopped before it had looked at everything; the next page goes on from there.
    """

    items: list[LineView]
    next: str | None
    is_bounded: bool = False
