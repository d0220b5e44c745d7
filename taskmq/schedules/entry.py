"""A schedule as beats see it: a task, its arguments, when, and what if not."""

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from taskmq.schedules.policy import DEFAULT_POLICY, SchedulePolicy
from taskmq.schedules.triggers import Trigger
from taskmq.tasks.task import Task

__all__ = ["ScheduleEntry", "job_id_of", "record_name", "rule_of"]

_NAMESPACE: Final = uuid.UUID("6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class ScheduleEntry(msgspec.Struct, frozen=True):
    """A recurring call of one task.

    Attributes:
        is_dynamic: whether it was made at run time, and is kept in the state.
    """

    name: str
    task: Task[..., Any]
    trigger: Trigger
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    policy: SchedulePolicy = DEFAULT_POLICY
    is_dynamic: bool = False


def record_name(app: str, schedule: str) -> str:
    """Under which name a state keeps the record of an app's schedule."""
    return f"{app}/{schedule}"


def job_id_of(app: str, schedule: str, instant: int, run: str = "") -> str:
    """The id of the job that a schedule emits for its nominal instant (ms): the same from every replica."""
    name = f"{record_name(app, schedule)}@{instant}"
    return str(uuid.uuid5(_NAMESPACE, f"{name}#{run}" if run else name))


def rule_of(trigger: Trigger) -> str:
    """Tells a trigger from others: equal ones have the same, in every process."""
    said = _ADDRESS.sub("", f"{type(trigger).__qualname__} {trigger!r}")
    return hashlib.sha256(said.encode()).hexdigest()[:12]
