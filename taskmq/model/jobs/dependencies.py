"""Dependencies between jobs: what a job waits for, and the effect of an upstream end. Pure.

    submit(depends_on=[a, (b, "ended")]) -> waiting --a and b have ended as they had to-> queued, scheduled
                                                    --one of them never will------------> upstream_failed, skipped

The *upstream* job is waited for; its *dependents* wait. A dependency is settled once, when the upstream job ends. If
that ended a dependent and the upstream job runs again, the dependent waits for the new run.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.model.states import JobState

DependencyCondition = Literal["succeeded", "ended", "failed"]
"""Required end of the upstream job: `succeeded`, `ended` (in any way), or `failed`.

`expired` and `upstream_failed` count as `failed`; `cancelled` and `skipped` do not.
"""

MOST_UPSTREAM: Final = 1_000
"""Maximum of jobs that one job may wait for."""

_CONDITIONS: Final[tuple[DependencyCondition, ...]] = ("succeeded", "ended", "failed")
_FAILURES: Final = frozenset({JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED})


class JobDependency(msgspec.Struct, frozen=True):
    """A dependency of a job on an upstream job.

    Attributes:
        id: the store's id of the upstream job.
        condition: how that one must end.
    """

    id: str
    condition: DependencyCondition = "succeeded"


def after_upstream(condition: DependencyCondition, state: JobState) -> JobState | None:
    """Return the state of a dependent whose upstream job ended in `state`.

    Returns:
        None: the dependency is met. `upstream_failed`: the upstream job should have succeeded and did not. `skipped`:
            it should have failed and did not, so the dependent is not needed.
    """
    if condition == "ended":
        return None
    if condition == "succeeded":
        return None if state is JobState.SUCCEEDED else JobState.UPSTREAM_FAILED
    return None if state in _FAILURES else JobState.SKIPPED


def end_reason(dependency: JobDependency, state: JobState) -> str:
    """Return why a dependent ended, for people."""
    return f"job {dependency.id} was to be {dependency.condition}, and is {state}"


def reattachment_note(note: str, ran: str, runs: str) -> str:
    """Return the note of the event that a dependent waits for a new run.

    Args:
        note: the operator's note.
        ran, runs: ids of the job that ended and of the job that runs.
    """
    what = f"job {ran} runs again" if ran == runs else f"job {ran} runs again as job {runs}"
    return f"{note}; {what}" if note else what


def unmet_conditions(state: JobState) -> list[DependencyCondition]:
    """Return the conditions that an upstream job which ended in `state` did not meet."""
    return [condition for condition in _CONDITIONS if after_upstream(condition, state) is not None]


def generations(upstream: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Sort jobs of one submission so that each follows those that it waits for.

    Args:
        upstream: the jobs that each waits for; jobs outside of the submission are ignored.

    Returns:
        Groups without dependencies inside; and the jobs in cycles or behind them, which could never run.
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
