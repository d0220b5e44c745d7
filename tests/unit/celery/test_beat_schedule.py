from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.schedules.triggers import Cron, Every
from taskmq_celery import crontab, import_beat_schedule
from taskmq_celery.beat_schedule import read_beat_schedule


class CeleryCrontab:
    """The attributes of Celery's `crontab`."""

    def __init__(self, minute: Any = "*", hour: Any = "*", **days: Any) -> None:
        self._orig_minute, self._orig_hour = minute, hour
        for name in ("day_of_week", "day_of_month", "month_of_year"):
            setattr(self, f"_orig_{name}", days.get(name, "*"))


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({}, "* * * * *"),
        ({"minute": 0, "hour": 0}, "0 0 * * *"),
        ({"minute": 0, "hour": "*/3"}, "0 */3 * * *"),
        ({"minute": "0,30", "hour": [8, 17]}, "0,30 8,17 * * *"),
        ({"minute": 0, "hour": 0, "day_of_week": "sunday"}, "0 0 * * sun"),
        ({"minute": 0, "hour": 0, "day_of_week": "Mon-Friday"}, "0 0 * * Mon-Fri"),
        ({"minute": 0, "hour": 0, "day_of_week": ("mon", 3, "sat")}, "0 0 * * mon,3,sat"),
        (
            {"minute": 0, "hour": "0, 12", "day_of_month": "1-7,15-21", "month_of_year": "*/3"},
            "0 0,12 1-7,15-21 */3 *",
        ),
    ],
)
def test_a_celery_crontab_becomes_the_same_expression(fields: Any, expression: str) -> None:
    expected = Cron(expression, "Europe/Paris", both_days=True)

    for kind in (crontab, CeleryCrontab):
        (entry,) = read_beat_schedule({"a": {"task": "t", "schedule": kind(**fields)}}, tz="Europe/Paris")
        assert entry.trigger == expected


def test_the_day_fields_of_a_crontab_have_to_match_together() -> None:
    friday_13 = crontab(0, 0, day_of_week="fri", day_of_month=13).trigger("UTC")

    found = friday_13.next_after(int(datetime(2026, 4, 1, tzinfo=UTC).timestamp() * 1000))
    assert found == int(datetime(2026, 11, 13, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    "schedule", [30, 30.0, timedelta(seconds=30), SimpleNamespace(run_every=timedelta(seconds=30))]
)
def test_a_period_is_a_number_of_seconds_or_a_timedelta_or_a_celery_schedule(schedule: Any) -> None:
    (entry,) = read_beat_schedule({"a": {"task": "t", "schedule": schedule, "relative": True}})

    assert entry.trigger == Every(30_000)


def test_a_taskmq_rule_is_accepted_unchanged() -> None:
    (entry,) = read_beat_schedule({"a": {"task": "t", "schedule": Cron("5 * * * *")}})

    assert entry.trigger == Cron("5 * * * *")


@pytest.mark.parametrize("fields", [{"minute": 60}, {"day_of_month": 30, "month_of_year": 2}])
def test_an_invalid_crontab_is_refused_at_its_line(fields: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^cron '"):
        crontab(**fields)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"task": "t"}, r"^beat_schedule\['a'\] has no 'schedule'$"),
        ({"schedule": 5}, r"^beat_schedule\['a'\] has no 'task'$"),
        ({"task": "t", "schedule": 5, "argz": ()}, r"^beat_schedule\['a'\]: unknown key 'argz'$"),
        ({"task": "t", "schedule": True}, "schedule=True is not a schedule"),
        ({"task": "t", "schedule": SimpleNamespace(event="sunset", lat=1)}, "a SimpleNamespace cannot be converted"),
        ({"task": "t", "schedule": 0}, "every=0: must be at least 100 ms"),
        ({"task": "t", "schedule": CeleryCrontab(minute=60)}, "cron '60 .*is invalid"),
    ],
)
def test_entries_that_cannot_be_converted_are_named(entry: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_beat_schedule({"a": entry})


def _app() -> TaskMQ:
    app = TaskMQ("memory://")

    @app.task(name="shop.add", queue="sums")
    def add(a: int, b: int = 0) -> int:
        return a + b

    return app


def test_an_app_imports_a_whole_celery_configuration() -> None:
    app = _app()

    import_beat_schedule(
        app,
        {
            "often": {"task": "shop.add", "schedule": 30.0, "args": (1, 2)},
            "nightly": {
                "task": "shop.add",
                "schedule": CeleryCrontab(hour=4, minute=30),
                "kwargs": {"a": 1},
                "options": {"queue": "sums", "expires": 15},
            },
        },
        tz="Europe/Paris",
        drop=["expires"],
    )

    often, nightly = app.schedules["often"], app.schedules["nightly"]
    assert (often.task.name, often.trigger, often.args, often.kwargs) == ("shop.add", Every(30_000), (1, 2), {})
    assert (nightly.trigger, nightly.args, nightly.kwargs) == (
        Cron("30 4 * * *", "Europe/Paris", both_days=True),
        (),
        {"a": 1},
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"task": "shop.sub", "schedule": 5}, "this app has no task 'shop.sub'; give a task that name"),
        (
            {"task": "shop.add", "schedule": 5, "args": [1], "options": {"expires": 9}},
            "'expires' cannot be converted",
        ),
        ({"task": "shop.add", "schedule": 5, "args": [1], "options": {"queue": "b"}}, "'queue' cannot be converted"),
        ({"task": "shop.add", "schedule": 5}, "schedule 'bad': the task must run without arguments"),
    ],
)
def test_an_invalid_celery_configuration_is_refused(entry: Any, message: str) -> None:
    app = _app()

    with pytest.raises(InvalidOption, match=message):
        import_beat_schedule(app, {"bad": entry})
    assert len(app.schedules) == 0
