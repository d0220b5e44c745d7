from datetime import UTC, datetime, timedelta

import pytest

from taskmq.schedules.triggers import Cron, Every, Limited, Once, cron, every


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0,20,40 * * * *", "every 20 minutes"),
        ("*/7 * * * *", "every 7 minutes from the start of each hour"),
        ("0 * * * *", "every hour, on the hour"),
        ("1 * * * *", "at 1 minute past every hour"),
        ("5,17 * * * *", "at 5 and 17 minutes past every hour"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 9,12,18 * * *", "at 09:00, 12:00 and 18:00 every day"),
        ("*/30 9 * * *", "at 09:00 and 09:30 every day"),
        ("* 2 * * *", "every minute from 02:00 to 02:59"),
        ("*/5 9-17 * * MON-FRI", "every 5 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("*/10 */2 * * *", "every 10 minutes of every second hour from 00:00"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 */7 * * *", "at 00:00, 07:00, 14:00 and 21:00 every day"),
        ("15 */2 * * *", "at 15 minutes past every second hour from 00:00"),
        ("15 */3 * * *", "at 15 minutes past every third hour from 00:00"),
        ("5,35 */4 * * *", "at 5 and 35 minutes past every 4th hour from 00:00"),
        ("0 9-17 * * *", "every hour, on the hour, from 09:00 to 17:00"),
        ("0 8-11,13-17 * * *", "every hour, on the hour, from 08:00 to 11:00 and from 13:00 to 17:00"),
        ("0 1,5,6,7,8,9 * * *", "at 01:00, 05:00, 06:00, 07:00, 08:00 and 09:00"),
        ("5,35 9-17 * * *", "at 5 and 35 minutes past every hour from 09:00 to 17:59"),
        ("@daily", "at 00:00 every day"),
        ("@weekly", "at 00:00 on Sunday"),
        ("@yearly", "at 00:00 on day 1 of the month in January"),
        ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month"),
        ("0 0 1-7,20 * *", "at 00:00 on days 1 to 7 and 20 of the month"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 15,L * *", "at 00:00 on day 15 and the last day of the month"),
        ("0 0 15W * *", "at 00:00 on the weekday nearest to day 15 of the month"),
        ("0 0 * * 5#2", "at 00:00 on the second Friday of the month"),
        ("0 0 * * 1#1,5#3", "at 00:00 on the first Monday and the third Friday of the month"),
        ("0 0 * * L5", "at 00:00 on the last Friday of the month"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 1 6-8 *", "at 00:00 on day 1 of the month in June to August"),
        ("0 12 * JAN,MAR MON,WED", "at 12:00 on Monday and Wednesday in January and March"),
        ("*/10 * * 6 *", "every 10 minutes in June"),
    ],
)
def test_a_cron_expression_in_words(expression: str, words: str) -> None:
    assert Cron(expression).describe() == f"{words}, UTC"
    assert Cron(expression, "Europe/Paris").describe() == f"{words}, Europe/Paris time"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/45 * * * * *", "every 45 seconds from the start of each minute"),
        ("5 * * * * *", "at second 5 of every minute"),
        ("5,35 * 9-17 * * *", "at seconds 5 and 35 of every minute from 09:00 to 17:59"),
        ("0 30 2 * * *", "at 02:30 every day"),
        ("30 0 2 * * *", "at 02:00:30 every day"),
        ("*/10 */15 * * * *", "every 10 seconds, in minutes 0, 15, 30 and 45 of every hour"),
        ("15 0 * * * *", "at second 15, in minute 0 of every hour"),
    ],
)
def test_seconds_in_words(expression: str, words: str) -> None:
    assert Cron(expression, seconds=True).describe() == f"{words}, UTC"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 1-7 * 1", "at 00:00 on days 1 to 7 of the month if it is a Monday, UTC"),
        ("0 0 13 * 5#2", "at 00:00 on day 13 of the month if it is the second Friday of the month, UTC"),
    ],
)
def test_day_fields_that_both_have_to_match_in_words(expression: str, words: str) -> None:
    assert Cron(expression, both_days=True).describe() == words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Every(100), "every 100 milliseconds"),
        (Every(30_000), "every 30 seconds"),
        (Every(90_000), "every 90 seconds"),
        (Every(3_600_000), "every hour"),
        (Every(86_400_000), "every day"),
        (Every(604_800_000), "every week"),
        (Every(3_600_000, 300_000), "every hour, 5 minutes after the multiples of it"),
        (Every(86_400_000, 3_661_001), "every day, 1 hour 1 minute 1 second 1 millisecond after the multiples of it"),
        (Once(1_800_000_000_000), "once, at 2027-01-15 08:00 UTC"),
        (Once(1_800_000_000_001), "once, at 2027-01-15 08:00:00.001 UTC"),
        (Once(1_800_000_001_000), "once, at 2027-01-15 08:00:01 UTC"),
    ],
)
def test_other_rules_in_words(rule: Every | Once, words: str) -> None:
    assert rule.describe() == words


def test_limits_in_words() -> None:
    start = datetime(2027, 1, 1, tzinfo=UTC)

    assert every("1h", start=start, max_runs=1).describe() == "every hour, from 2027-01-01 00:00 UTC, once"
    limited = cron(
        "0 9 * * *",
        start=start,
        end=start + timedelta(days=365),
        max_runs=20,
        exclude=["sun", "sat", "12-25", "2027-04-03"],
    )
    assert isinstance(limited, Limited)
    assert limited.describe() == (
        "at 09:00 every day, UTC, from 2027-01-01 00:00 UTC, until 2028-01-01 00:00 UTC, 20 times at most, "
        "except on Saturdays, Sundays, 25 December and 2027-04-03"
    )
    assert every("1h", exclude=["fri"]).describe() == "every hour, except on Fridays"
