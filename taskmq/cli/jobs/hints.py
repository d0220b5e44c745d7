"""Commands about one job of the store, and where a job is that the store does not have."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, cast

from taskmq.cli.globals import current_globals
from taskmq.cli.server_link import Api, ask
from taskmq.errors import JobNotFound

if TYPE_CHECKING:
    from taskmq.cli.operator import OperatorApi

__all__ = ["ask_about", "hinted"]

T = TypeVar("T")


def ask_about(job: str, use: "Callable[[Api], Awaitable[T]]") -> T:
    """Return what calls about a job come to, as `ask`.

    Args:
        job: as the caller names it.
        use: makes the calls.

    Raises:
        JobNotFound: the store has no such job; at an app the message says where it may be.
    """

    async def run(api: Api) -> T:
        try:
            return await use(api)
        except JobNotFound as error:
            raise await hinted(api, job, error) from error

    return ask(run)


async def hinted(api: Api, job: str, error: JobNotFound) -> JobNotFound:
    """The error, with where the job may be; a server's error says that itself."""
    if current_globals().server is not None:
        return error
    hint = await cast("OperatorApi", api).locate_missing_job(job)
    # What the error says behind that is in the words of HTTP.
    said = str(error).partition("; ")[0]
    return JobNotFound(f"{said}; {hint}" if hint else said)
