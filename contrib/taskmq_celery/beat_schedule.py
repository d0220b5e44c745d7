"""Celery's `beat_schedule`, read and defined as schedules of an app."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

from taskmq.app import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.triggers import Cron, Every, Trigger
from taskmq.tasks.task import Task

_FIELDS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_KEYS: Final = frozenset({"task", "schedule", "args", "kwargs", "options", "relative"})
_NAME: Final = re.compile(r"[a-zA-Z]{4,}")

CronField = str | int | Iterable[int | str]
"""Values that Celery accepts for one field: text as in cron, a number, or several."""


@dataclass(frozen=True, slots=True)
class CeleryEntry:
    """An entry of a `beat_schedule`, read."""

    name: str
    task: str
    trigger: Trigger
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Crontab:
    """The fields of Celery's `crontab`, without a time zone."""

    expression: str

    def trigger(self, tz: str) -> Cron:
        """Return the rule for a time zone. A day must match both of its fields, while cron requires only one."""
        return Cron(self.expression, tz, both_days=True)


def crontab(
    minute: CronField = "*",
    hour: CronField = "*",
    *,
    day_of_week: CronField = "*",
    day_of_month: CronField = "*",
    month_of_year: CronField = "*",
) -> Crontab:
    """Replace Celery's `crontab` in a `beat_schedule`.

    Raises:
        InvalidOption: a field is malformed, or the schedule is never due.
    """
    found = Crontab(" ".join(map(_text, (minute, hour, day_of_month, month_of_year, day_of_week))))
    found.trigger("UTC")
    return found


def import_beat_schedule(
    app: TaskMQ,
    beat_schedule: Mapping[str, Mapping[str, Any]],
    *,
    tz: str = "UTC",
    drop: Collection[str] = (),
) -> None:
    """Define a schedule of `app` for each entry, as if the app's code had defined it.

    Args:
        app: has the tasks that the entries call.
        beat_schedule: by name: `task`, `schedule` (seconds, a timedelta, a `crontab`), optionally
            `args` and `kwargs`.
        tz: Celery's `timezone`.
        drop: sending options to ignore, since the tasks define them.

    Raises:
        InvalidOption: an entry cannot be converted; then none is defined.
    """
    # All are built before the first is defined: an invalid entry leaves nothing behind.
    for schedule in [_schedule(entry, app.tasks, drop) for entry in read_beat_schedule(beat_schedule, tz=tz)]:
        app.schedules.define(schedule)


def read_beat_schedule(entries: Mapping[str, Mapping[str, Any]], *, tz: str = "UTC") -> list[CeleryEntry]:
    """Read the entries of a `beat_schedule`.

    Args:
        tz: Celery's `timezone`, for each `crontab`.

    Raises:
        InvalidOption: an entry is malformed, has an unknown key, or is scheduled by the sun.
    """
    return [_entry(name, entry, tz) for name, entry in entries.items()]


def _schedule(entry: CeleryEntry, tasks: Mapping[str, Task[..., Any]], drop: Collection[str]) -> ScheduleEntry:
    task = tasks.get(entry.task)
    if task is None:
        raise InvalidOption(
            f"beat_schedule[{entry.name!r}]: this app has no task {entry.task!r}; give a task that name with name="
        )
    same = {"queue": task.queue}
    left = sorted(name for name, value in entry.options.items() if name not in drop and same.get(name) != value)
    if left:
        raise InvalidOption(
            f"beat_schedule[{entry.name!r}]: the option {left[0]!r} cannot be converted; set it on the task "
            f"{entry.task!r} and pass drop=[{left[0]!r}]"
        )
    return ScheduleEntry(entry.name, task, entry.trigger, entry.args, entry.kwargs)


def _entry(name: str, entry: Mapping[str, Any], tz: str) -> CeleryEntry:
    if unknown := sorted(entry.keys() - _KEYS):
        raise InvalidOption(f"beat_schedule[{name!r}]: unknown key {unknown[0]!r}")
    for key in ("task", "schedule"):
        if key not in entry:
            raise InvalidOption(f"beat_schedule[{name!r}] has no {key!r}")
    return CeleryEntry(
        name,
        str(entry["task"]),
        _trigger(name, entry["schedule"], tz),
        tuple(entry.get("args") or ()),
        dict(entry.get("kwargs") or {}),
        dict(entry.get("options") or {}),
    )


def _trigger(name: str, schedule: object, tz: str) -> Trigger:
    if isinstance(schedule, bool):
        raise InvalidOption(f"beat_schedule[{name!r}]: schedule={schedule!r} is not a schedule")
    if isinstance(schedule, timedelta | int | float):
        return Every.parse(schedule)
    if isinstance(schedule, Crontab):
        return schedule.trigger(tz)
    if callable(getattr(schedule, "next_after", None)):
        return cast("Trigger", schedule)
    fields = {field: getattr(schedule, f"_orig_{field}", None) for field in _FIELDS}
    if None not in fields.values():
        return crontab(**cast("dict[str, Any]", fields)).trigger(tz)
    if isinstance(period := getattr(schedule, "run_every", None), timedelta):
        return Every.parse(period)
    raise InvalidOption(
        f"beat_schedule[{name!r}]: a {type(schedule).__name__} cannot be converted; use seconds, a timedelta, a "
        "crontab or a schedule"
    )


def _text(field: CronField) -> str:
    if isinstance(field, str):
        # Celery also accepts full names of days.
        return _NAME.sub(lambda name: name[0][:3], field.replace(" ", ""))
    if isinstance(field, int):
        return str(field)
    return ",".join(_text(value) for value in field)
