"""Schedules above a task, and triggers."""

from datetime import UTC, date, datetime
from typing import assert_type

from taskmq import Run, Task, TaskMQ, Workflow
from taskmq.schedules import Schedules
from taskmq.schedules.triggers import Cron, DaysOff, Every, Limited, Once, Trigger, cron, every, instants_after, once
from taskmq.tasks.task import SyncTask
from taskmq_celery import crontab, import_beat_schedule

app = TaskMQ("memory://")
start = datetime(2027, 1, 1, tzinfo=UTC)


@app.cron("*/5 * * * *", tz="Europe/Paris", dst_gap="skip", dst_fold="both", jitter="5m", catchup="all")
@app.every("30s", name="often", phase="5s", start=start, end=start, max_runs=3, exclude=["sat", date(2027, 1, 6)])
@app.every(30, name="again", anchor=start, overlap="skip")
@app.task
def tick() -> str:
    return ""


# A schedule leaves the task unchanged.
assert_type(tick, SyncTask[[], str])
assert_type(app.schedules, Schedules)
_task: Task[..., object] = app.schedules["often"].task
app.schedules.add("x", tick, every("1h"))
app.schedules.add("x", tick.s(), every("1h"))
app.schedules.add("x", tick.s() | tick.si(), every("1h"))
app.schedules.add("x", "tick", every("1h"))


@app.every("1d")
@app.workflow
def nightly() -> Workflow[str]:
    return tick.s()


assert_type(nightly.send(), Run[str])
app.schedules.add("x", nightly, every("1h"))
app.every("1h", name="chain")(tick.s() | tick.si())
app.every("1h")("tick")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]

app.cron("* * * * *", dst_gap="before")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.cron("* * * * *", dst_fold="third")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.cron("* * * * *", zone="UTC")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.cron("* * * * *", phase="5s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.every("5s", tz="UTC")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.every("5s", start="2027")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.every()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

triggers: list[Trigger] = [
    Every(1000),
    Cron("* * * * *"),
    Once(0),
    Limited(Every(1000), days_off=DaysOff.parse(["sat"])),
    every("5s", exclude=[DaysOff()]),
    cron("@daily", tz="Europe/Paris", seconds=False, both_days=True),
    once(start),
]
assert_type(triggers[0].next_after(0), int | None)
assert_type(next(instants_after(triggers[0], 0)), int)
assert_type(triggers[0].describe(), str)

import_beat_schedule(
    app,
    {"a": {"task": "tick", "schedule": crontab(hour=[7, 8], day_of_week="mon")}},
    tz="Europe/Paris",
    drop=["expires"],
)
