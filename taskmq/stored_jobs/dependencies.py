"""Dependencies of submitted jobs, resolved from names to the store's ids."""

from collections.abc import Awaitable, Callable, Iterable

from taskmq.contracts.jobs import JobRecord, Submitted
from taskmq.errors import InvalidOption, JobConflict, JobNotFound
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency, after_upstream
from taskmq.model.states import JobState


async def resolve_upstream(
    depends_on: Iterable[tuple[str, DependencyCondition]], find: Callable[[str], Awaitable[JobRecord | None]]
) -> tuple[JobDependency, ...]:
    """Resolve the names of jobs to the store's ids.

    Args:
        find: returns the job of a name.

    Raises:
        InvalidOption: a job is listed twice.
        JobNotFound: the store has no such job.
    """
    found: dict[str, JobDependency] = {}
    for name, condition in depends_on:
        if (record := await find(name)) is None:
            raise _unknown_job(name)
        if record.id in found:
            raise InvalidOption(f"depends_on: job {name!r} is listed twice")
        found[record.id] = JobDependency(record.id, condition)
    return tuple(found.values())


async def resolve_upstream_again(
    record: JobRecord, get: Callable[[str], Awaitable[JobRecord | None]]
) -> tuple[JobDependency, ...]:
    """Return the dependencies of an ended job that is run again.

    They are its earlier dependencies, or the jobs that repeat those. A job that has already run waits only for
    dependencies that run again themselves.

    Args:
        get: returns the job of an id.

    Raises:
        JobConflict: it never ran because a dependency did not end as required and was not retried.
    """
    depends_on = () if record.detail is None else record.detail.depends_on
    # A job cancelled or expired while it waited never had its dependencies.
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
            f"job {name} depends on job {dependency.id}, which is no longer kept: clone this one to run it without",
            state=str(record.state),
            version=record.version,
        )
    if after_upstream(dependency.condition, other.state) is not None:
        raise JobConflict(
            f"job {name} depends on job {other.key or other.id} being {dependency.condition}, but that is "
            f"{other.state}: retry that job first, or clone this one to run it without",
            state=str(record.state),
            version=record.version,
            waits_for=other.id,
        )


def check_refusal(answer: Submitted, name: str) -> None:
    """Raise the store's refusal as an error.

    Args:
        name: name of the submitted job.

    Raises:
        JobNotFound: it depends on a job that its tenant does not have.
        InvalidOption: it depends on itself, directly or through others.
    """
    if answer.refusal is None:
        return
    if answer.refusal.reason == "unknown":
        raise _unknown_job(answer.refusal.id)
    raise InvalidOption(f"job {name}: circular dependency: it waits for job {answer.refusal.id}, which waits for it")


def _unknown_job(name: str) -> JobNotFound:
    return JobNotFound(
        f"depends_on: this tenant has no job {name[:255]!r}: it was never submitted, or is no longer kept"
    )
