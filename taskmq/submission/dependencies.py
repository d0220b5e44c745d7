"""The jobs that a submitted job waits for: found by their names."""

from collections.abc import Awaitable, Callable, Iterable

from taskmq.contracts.jobs import JobRecord, Submitted
from taskmq.errors import InvalidOption, JobNotFound
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency

__all__ = ["check_refusal", "upstream_of"]


async def upstream_of(
    depends_on: Iterable[tuple[str, DependencyCondition]], find: Callable[[str], Awaitable[JobRecord | None]]
) -> tuple[JobDependency, ...]:
    """Name the same jobs by the store's ids.

    Args:
        find: the job of a name.

    Raises:
        InvalidOption: one of them is there twice.
        JobNotFound: the store has no such job.
    """
    found: dict[str, JobDependency] = {}
    for name, condition in depends_on:
        if (record := await find(name)) is None:
            raise _unknown(name)
        if record.id in found:
            raise InvalidOption(f"depends_on: job {name!r} is there twice")
        found[record.id] = JobDependency(record.id, condition)
    return tuple(found.values())


def check_refusal(answer: Submitted, name: str) -> None:
    """Let the store's refusal be an error.

    Args:
        name: of the job that was submitted.

    Raises:
        JobNotFound: it was to wait for one that its tenant does not have.
        InvalidOption: it was to wait for itself, also by way of others.
    """
    if answer.refusal is None:
        return
    if answer.refusal.reason == "unknown":
        raise _unknown(answer.refusal.id)
    raise InvalidOption(f"job {name}: it waits for job {answer.refusal.id}, which waits for it")


def _unknown(name: str) -> JobNotFound:
    return JobNotFound(
        f"depends_on: the store has no job {name[:255]!r}, or it is another tenant's: it was never submitted, or is "
        "not kept any more"
    )
