"""Explanations of triggers."""

from datetime import UTC, datetime

import pytest

from taskmq.schedules.triggers import Trigger, cron, every, explain_trigger

_NOON = round(datetime(2027, 1, 30, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        (cron("0 2 * * *"), "none: UTC has no clock changes"),
        (every("1h"), "goes by elapsed time"),
        (cron("*/5 * * * *", tz="Europe/Berlin"), "goes by elapsed time"),
        (
            cron("30 2 * * *", tz="Europe/Berlin"),
            "a skipped time is due right after the gap; a repeated time is due the first time only",
        ),
        (
            cron("30 2 * * *", tz="Europe/Berlin", dst_gap="skip", dst_fold="both"),
            "a skipped time is not due; a repeated time is due both times",
        ),
    ],
)
def test_the_explanation_covers_clock_changes(trigger: Trigger, said: str) -> None:
    assert explain_trigger(trigger, after=_NOON, count=0).clock_changes == said


def test_the_next_instants_are_shown_in_the_zone() -> None:
    berlin = cron("0 2 * * *", tz="Europe/Berlin")
    limited = cron("0 2 * * *", tz="Europe/Berlin", end=datetime(2027, 1, 31, 12, tzinfo=UTC))

    assert explain_trigger(berlin, after=_NOON, count=2).next == [
        "2027-01-31 02:00:00+01:00",
        "2027-02-01 02:00:00+01:00",
    ]
    assert explain_trigger(limited, after=_NOON, count=2).next == ["2027-01-31 02:00:00+01:00"]
    assert explain_trigger(limited, after=_NOON, count=2).means == limited.describe()
