"""Snapshots of a run and of its steps, for its handle."""

from typing import Any

import msgspec

from taskmq.model.runs.records import RunState, StepRecord
from taskmq.model.runs.rules import StepState


class RunStatus(msgspec.Struct, frozen=True):
    """Progress of a run, as a whole and step by step.

    Attributes:
        state: `failed` if a step has failed that was not allowed to.
        steps: state of each step by its name; children are followed by a number in brackets.
        cancelled: why it was cancelled.
    """

    state: RunState
    steps: dict[str, StepState]
    cancelled: str | None = None

    def count(self, state: StepState | str) -> int:
        """Return how many steps are in this state."""
        return sum(each == state for each in self.steps.values())


class EndedStep(msgspec.Struct, frozen=True):
    """The end of one step of a run.

    Attributes:
        value: its value as plain data.
        error: of a step that has failed.
    """

    name: str
    state: StepState
    value: Any = None
    error: str = ""


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a step or a child of a run.

    Attributes:
        task: its task's name; "" for a step that runs none.
        job: id of its job.
        attempts: attempts of that job; None without one.
        error: why it failed, was cancelled or never started.
        quota: the exhausted quota that its job, or that of its next child, waits for; "" for none.
        after: names of the steps before it.
        part_of: of a child, the name of its step.
        started, ended: ms since the epoch.
    """

    name: str
    task: str
    state: StepState
    job: str = ""
    attempts: int | None = None
    error: str = ""
    quota: str = ""
    after: tuple[str, ...] = ()
    part_of: str | None = None
    started: int | None = None
    ended: int | None = None


def name_step(step: StepRecord) -> str:
    """Return the name of a step; a child's has its number in brackets."""
    return f"{step.key.name}[{step.key.child}]" if step.key.is_child else step.key.name


def snapshot_step(step: StepRecord, task: str, after: tuple[str, ...]) -> RunStep:
    """Build the snapshot of a step or a child; `after` names the steps before it."""
    return RunStep(
        name=name_step(step),
        task=task,
        state=step.state,
        job=step.job,
        error=step.error,
        quota=step.quota,
        after=after,
        part_of=step.key.name if step.key.is_child else None,
        started=step.started,
        ended=step.ended,
    )
