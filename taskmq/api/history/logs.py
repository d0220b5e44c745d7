"""Log lines of job runs."""

import msgspec


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """A log line. `log_time`, `log_level` and `log_message` repeat `at`, `level` and `message`.

    Attributes:
        id: the store's id of the job.
        run_id, step, child: of the job of a step, its run, its step, and its number among the children of the step.
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
    run_id: str = ""
    step: str = ""
    child: int | None = None
    log_time: str | None
    log_level: str
    log_message: str


class LineList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of log lines, oldest first.

    Attributes:
        next: the `cursor` of the next page; None if there were no more lines. For a single job or run it is always
            set, so that clients can follow the log.
        is_bounded: whether the search stopped before it examined everything; the next page continues from there.
    """

    items: list[LineView]
    next: str | None
    is_bounded: bool = False
