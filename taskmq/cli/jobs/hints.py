"""Calls about one job of the store, with hints where a missing job may be."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, cast

from taskmq.cli.globals import current_globals
from taskmq.cli.server_link import Api, ask
from taskmq.errors import JobNotFound

if TYPE_CHECKING:
    from taskmq.cli.operator import OperatorApi

T = TypeVar("T")


def ask_about(job: str, use: "Callable[[Api], Awaitable[T]]") -> T:
    """Call `use` with the API as `ask` does; add a hint to the error if the job is missing.

    Args:
        job: the job's id as the caller gave it.
        use: makes the calls.

    Raises:
        JobNotFound: the store has no such job; at an app the message says where it may be.
    """

    async def run(api: Api) -> T:
        try:
            return await use(api)
        except JobNotFound as error:
            raise await add_hint(api, job, error) from error

    return ask(run)


async def add_hint(api: Api, job: str, error: JobNotFound) -> JobNotFound:
    """Return the error with a hint where the job may be; a server's error carries the hint already."""
    if current_globals().server is not None:
        return error
    hint = await cast("OperatorApi", api).locate_missing_job(job)
    # The rest of the text is about HTTP.
    summary = str(error).partition("; ")[0]
    return JobNotFound(f"{summary}; {hint}" if hint else summary)
