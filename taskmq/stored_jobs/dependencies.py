"""The jobs that a submitted job waits for: found by their names."""

from collections.abc import Awaitable, Callable, Iterable

from taskmq.contracts.jobs import JobRecord, Submitted
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency, after_upstream
from taskmq.model.states import JobState

__all__ = ["check_refusal", "upstream_again", "upstream_of"]


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


async def upstream_again(
    record: JobRecord, get: Callable[[str], Awaitable[JobRecord | None]]
) -> tuple[JobDependency, ...]:
    """Return what an ended job waits for when it is run again: what it waited for before, or what repeats that.

    One that has run waits only for those that run again themselves.

    Args:
        get: the job of that id.

    Raises:
        JobConflict: it never ran, since another one has not ended as it had to, and that one was not retried.
    """
    depends_on = () if record.detail is None else record.detail.depends_on
    # One that was cancelled or has expired while it waited has never had what it waited for.
    has_run = record.token > 0 and record.state not in (JobState.UPSTREAM_FAILED, JobState.SKIPPED)
    found: dict[str, JobDependency] = {}
    for each in depends_on:
        other = await get(each.id)
        while other is not None and other.retried_as:
            other = await get(other.retried_as)
        if other is not None and not other.state.is_final:
            found[other.id] = JobDependency(other.id, each.condition)
        elif not has_run:
            _check_end(record, each, other)
    return tuple(found.values())


def _check_end(record: JobRecord, dependency: JobDependency, other: JobRecord | None) -> None:
    name = record.key or record.id
    if other is None:
        raise JobConflict(
            f"job {name} waited for job {dependency.id}, which is not kept any more: clone it to run it without that",
            state=str(record.state),
            version=record.version,
        )
    if after_upstream(dependency.condition, other.state) is not None:
        raise JobConflict(
            f"job {name} waited for job {other.key or other.id}, which was to be {dependency.condition}, and is "
            f"{other.state}: retry that one first, or clone this one to run it without",
            state=str(record.state),
            version=record.version,
            waits_for=other.id,
        )


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
