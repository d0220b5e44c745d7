"""Commands about one job of the store, and where a job is that the store does not have."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from taskmq.cli.globals import run_with_app
from taskmq.errors import BrokerUnavailable, JobNotFound, StateUnavailable, UnsupportedFeature

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = ["hinted", "run_about"]

T = TypeVar("T")


def run_about(job: str, use: "Callable[[TaskMQ], Coroutine[Any, Any, T]]") -> T:
    """Do what `use` does with the app, as `run_with_app`.

    Raises:
        JobNotFound: the store has no such job; the message says where it may be.
    """

    async def run(target: "TaskMQ") -> T:
        try:
            return await use(target)
        except JobNotFound as error:
            raise await hinted(target, job, error) from error

    return run_with_app(run)


async def hinted(target: "TaskMQ", job: str, error: JobNotFound) -> JobNotFound:
    """The error, with where the job may be."""
    from taskmq.operations.jobs import look_elsewhere

    try:
        hint = await look_elsewhere(target, job)
    except (BrokerUnavailable, StateUnavailable, UnsupportedFeature):
        return error
    return JobNotFound(f"{error}; {hint}") if hint else error
