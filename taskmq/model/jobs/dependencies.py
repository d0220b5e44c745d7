"""Jobs that wait for others: what they wait for, and what the end of one means to those that wait for it. Pure.

    submit(depends_on=[a, (b, "ended")]) -> waiting --a and b have ended as they had to-> queued, scheduled
                                                    --one of them never will------------> upstream_failed, skipped

The *upstream* job is the one that is waited for, its *dependents* are those that wait. A dependency is settled once,
when its upstream job ends: an end is final, and running that job again is another job.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.model.states import JobState

__all__ = ["MOST_UPSTREAM", "DependencyCondition", "JobDependency", "after_upstream", "end_reason", "generations"]

DependencyCondition = Literal["succeeded", "ended", "failed"]
"""How the upstream job has to end: `succeeded`; in any way; or `failed`, which `expired` and `upstream_failed` count
as, and `cancelled` and `skipped` do not."""

MOST_UPSTREAM: Final = 1_000
"""So many jobs one job may wait for."""

_FAILURES: Final = frozenset({JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED})


class JobDependency(msgspec.Struct, frozen=True):
    """That a job waits for another one.

    Attributes:
        id: of the upstream job: the store's own.
        condition: how that one has to end.
    """

    id: str
    condition: DependencyCondition = "succeeded"


def after_upstream(condition: DependencyCondition, state: JobState) -> JobState | None:
    """What becomes of a job whose upstream job has ended in `state`.

    Returns:
        None: the dependency is met. `upstream_failed`: it was to succeed, and has not. `skipped`: it was to fail, and
        has not, so that the job is not needed.
    """
    if condition == "ended":
        return None
    if condition == "succeeded":
        return None if state is JobState.SUCCEEDED else JobState.UPSTREAM_FAILED
    return None if state in _FAILURES else JobState.SKIPPED


def end_reason(dependency: JobDependency, state: JobState) -> str:
    """Why a job that waited has ended, for people."""
    return f"job {dependency.id} was to be {dependency.condition}, and is {state}"


def generations(upstream: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Jobs of one submission in an order in which each comes behind those that it waits for.

    Args:
        upstream: what each of them waits for; others than these do not matter.

    Returns:
        Groups, of which none has a job and one that it waits for; and those that never come, since they wait, also by
        way of others, for themselves.
    """
    left = {job_id: {each for each in others if each in upstream} for job_id, others in upstream.items()}
    groups: list[list[str]] = []
    while group := [job_id for job_id, others in left.items() if not others]:
        groups.append(group)
        for job_id in group:
            del left[job_id]
        done = set(group)
        left = {job_id: others - done for job_id, others in left.items()}
    return groups, list(left)
