"""Schedules from a Celery configuration; Celery need not be installed.

    from taskmq_celery import crontab, import_beat_schedule

    import_beat_schedule(app, {"nightly": {"task": "reports.send", "schedule": crontab(hour=4)}}, tz="Europe/Paris")

Each entry of `beat_schedule` becomes a schedule of the app. Seconds, a timedelta and Celery's `schedule` become
`Every`; a `crontab` becomes `Cron` in the time zone `tz`. As in Celery, a `crontab` is due on days that match both
its day of the month and its day of the week, while cron requires only one of them. Objects are recognised by their
attributes, not by their class: Celery's own work as well as the `crontab` of this package.

All entries are read before the first schedule is defined. An entry is refused if the app lacks its task, if it is
scheduled by the sun, or if it has a sending option that the task does not have, unless `drop` names the option.
"""

from taskmq_celery.beat_schedule import Crontab, crontab, import_beat_schedule

__all__ = ["Crontab", "crontab", "import_beat_schedule"]
