"""What a job that is submitted is to wait for, as callers say it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast, get_args

from taskmq.contracts.jobs import JobRecord, Submitted
from taskmq.errors import InvalidOption, JobNotFound
from taskmq.jobs.handle import Job
from taskmq.model.jobs.dependencies import MOST_UPSTREAM, DependencyCondition, JobDependency

__all__ = ["DependsOn", "check_refusal", "upstream_of"]

DependsOn = Sequence[Job[Any] | str | tuple[Job[Any] | str, DependencyCondition]]
"""Jobs, or their ids: each has to succeed, unless it comes with another condition."""

_CONDITIONS: Final = get_args(DependencyCondition)


async def upstream_of(
    depends_on: DependsOn, find: Callable[[str], Awaitable[JobRecord | None]]
) -> tuple[JobDependency, ...]:
    """The same by the store's ids.

    Args:
        find: the job that is called so.

    Raises:
        InvalidOption: it is not said as it has to be, or of too many jobs.
        JobNotFound: the store has no such job.
    """
    if isinstance(depends_on, str | Job):
        raise InvalidOption("depends_on: a list of jobs, and this is one: put it into a list")
    if len(depends_on) > MOST_UPSTREAM:
        raise InvalidOption(f"depends_on: at most {MOST_UPSTREAM:,} jobs, these are {len(depends_on):,}")
    found: dict[str, JobDependency] = {}
    for each in depends_on:
        name, condition = _said(each)
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


def _said(each: Any) -> tuple[str, DependencyCondition]:
    match each:
        case (job, condition):
            pass
        case _:
            job, condition = each, "succeeded"
    name = job.id if isinstance(job, Job) else job
    if not isinstance(name, str) or condition not in _CONDITIONS:
        raise InvalidOption(
            f"depends_on: {each!r}: a job, its id, or (a job, condition) with {', '.join(map(repr, _CONDITIONS))}"
        )
    return name, cast("DependencyCondition", condition)


def _unknown(name: str) -> JobNotFound:
    return JobNotFound(
        f"depends_on: the store has no job {name[:255]!r}, or it is another tenant's: it was never submitted, or is "
        "not kept any more"
    )
