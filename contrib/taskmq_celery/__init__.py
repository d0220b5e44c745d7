"""Schedules from a Celery configuration; Celery need not be installed.

    from taskmq_celery import crontab, import_beat_schedule

    import_beat_schedule(app, {"nightly": {"task": "reports.send", "schedule": crontab(hour=4)}}, tz="Europe/Paris")

Each entry of `beat_schedule` becomes a schedule of the app: seconds, a timedelta and Celery's `schedule` become
`Every`, a `crontab` becomes `Cron` by the clocks of `tz`. A `crontab` is due on days that fit both its day of the
month and its day of the week, as in Celery; cron asks for one of them. Objects are recognised by their attributes,
not by their class: Celery's own work as well as the `crontab` of this package.

All entries are read before the first schedule is defined. Refused are an entry whose task the app does not have, a
schedule by the sun, and an option of sending that the task does not have already, unless `drop` names it.
"""

from taskmq_celery.beat_schedule import Crontab, crontab, import_beat_schedule

__all__ = ["Crontab", "crontab", "import_beat_schedule"]
