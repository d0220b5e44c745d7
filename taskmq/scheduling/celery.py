"""A `beat_schedule` of Celery as schedules of an app."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from taskmq.errors import InvalidOption
from taskmq.schedule.celery import CeleryEntry, read_beat_schedule
from taskmq.scheduling.entry import ScheduleEntry
from taskmq.tasks import Task

__all__ = ["import_celery"]


def import_celery(
    beat_schedule: Mapping[str, Mapping[str, Any]],
    *,
    tasks: Mapping[str, Task[..., Any]],
    define: Callable[[ScheduleEntry], None],
    tz: str,
    drop: Collection[str],
) -> None:
    """Define a schedule for each entry; see `Schedules.import_celery`."""
    # All are made before the first is defined: an entry that cannot be leaves nothing behind.
    for entry in [_schedule(each, tasks, drop) for each in read_beat_schedule(beat_schedule, tz=tz)]:
        define(entry)


def _schedule(entry: CeleryEntry, tasks: Mapping[str, Task[..., Any]], drop: Collection[str]) -> ScheduleEntry:
    task = tasks.get(entry.task)
    if task is None:
        raise InvalidOption(
            f"beat_schedule[{entry.name!r}]: this app has no task {entry.task!r}; give one that name="
        )
    same = {"queue": task.queue}
    left = sorted(name for name, value in entry.options.items() if name not in drop and same.get(name) != value)
    if left:
        raise InvalidOption(
            f"beat_schedule[{entry.name!r}]: the option {left[0]!r} is not taken over; say it at the task "
            f"{entry.task!r}, and drop=[{left[0]!r}] here"
        )
    return ScheduleEntry(entry.name, task, entry.trigger, entry.args, entry.kwargs)
