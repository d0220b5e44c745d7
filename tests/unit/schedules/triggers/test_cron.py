import pickle
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.schedules import triggers
from taskmq.schedules.triggers import Cron, cron, for_schedule, instants_after
from taskmq.schedules.triggers.fields import Fields

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = "Antarctica/Troll"


def ms(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def utc(instant: int) -> str:
    return (_EPOCH + timedelta(milliseconds=instant)).isoformat(" ", "minutes").removesuffix("+00:00")


def first(cron: Cron, after: str, count: int) -> list[str]:
    return [utc(instant) for instant in islice(instants_after(cron, ms(after)), count)]


def test_five_fields_are_due_at_the_start_of_their_minute() -> None:
    assert first(Cron("*/20 9 * * *"), "2026-01-01 09:15:30", 3) == [
        "2026-01-01 09:20",
        "2026-01-01 09:40",
        "2026-01-02 09:00",
    ]


def test_the_next_instant_is_strictly_later() -> None:
    noon = ms("2026-01-01 12:00")

    assert Cron("0 12 * * *").next_after(noon - 1) == noon
    assert Cron("0 12 * * *").next_after(noon) == noon + 86_400_000


def test_six_fields_have_their_seconds_first_and_only_on_request() -> None:
    noon = ms("2026-01-01 12:00")

    assert list(islice(instants_after(Cron("*/20 0 12 * * *", seconds=True), noon), 3)) == [
        noon + 20_000,
        noon + 40_000,
        noon + 86_400_000,
    ]
    with pytest.raises(InvalidOption, match=r"^cron '\* \* \* \* \* \*' has six fields: pass seconds=True"):
        Cron("* * * * * *")
    with pytest.raises(InvalidOption, match=r"has 5 fields, not 6: second, minute, hour,"):
        Cron("* * * * *", seconds=True)


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("30 5-5 * * *", "30 5 * * *"),
        ("0 0 * * MON-MON", "0 0 * * 1"),
        ("0 0 * * mon-1", "0 0 * * 1"),
        ("0 0 * * 7-0", "0 0 * * 0"),
        ("0 0 * * 7-SUN/2,3", "0 0 * * 0,3"),
        ("0 0 1 6-JUN *", "0 0 1 6 *"),
        ("59-59/15,7-07 * * * *", "7,59 * * * *"),
        ("0 0 * * 0-7", "0 0 * * *"),
    ],
)
def test_a_range_of_one_value_is_that_value(expression: str, same: str) -> None:
    assert Cron(expression).fields == Cron(same).fields


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("0 0 1-31 * MON", "0 0 * * *"),
        ("0 0 1-7 * 0-6", "0 0 * * *"),
        ("0 0 20,* * MON", "0 0 * * *"),
        ("0 0 15W * MON-SUN", "0 0 * * *"),
        ("0 0 */1 * MON", "0 0 * * MON"),
        ("0 0 *,20 * MON", "0 0 * * MON"),
        ("0 0 ? * MON", "0 0 * * MON"),
    ],
)
def test_a_day_field_that_every_day_meets_overrides_the_other_unless_it_is_starred(
    expression: str, same: str
) -> None:
    assert Cron(expression).fields == Cron(same).fields
    assert Cron(expression).describe() == Cron(same).describe()


def test_a_day_field_that_begins_with_a_star_narrows_the_other() -> None:
    first_sundays = Cron("0 0 1-7 * */7")

    assert first(first_sundays, "2026-01-01", 3) == ["2026-01-04 00:00", "2026-02-01 00:00", "2026-03-01 00:00"]
    assert first_sundays.describe() == "at 00:00 on days 1 to 7 of the month if it is a Sunday, UTC"


def test_an_alias_has_no_seconds() -> None:
    assert Cron("@daily", seconds=True).fields == Cron(" @Daily ").fields == Cron("0 0 * * *").fields


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 0 30 2 *", "is never due: no month has such a day"),
        ("0 0 31 4,6,9,11 *", "is never due: no month has such a day"),
        ("", "has 0 fields, not 5: minute, hour, day of the month, month, day of the week"),
        ("* * * *", "has 4 fields, not 5"),
        ("* * * * * * *", "has 7 fields, not 5"),
        ("@reboot", "is unknown: use one of @yearly,"),
        ("0 0 * * 5L", "write L5"),
        ("0 0 LW * *", "or 31W instead"),
        ("0 0 * * 0-6,sat#3", "mixes weekdays with and without a number"),
        ("60 * * * *", "is invalid: bad minute '60': use 0 to 59$"),
        ("30 25 * * *", "is invalid: bad hour '25': use 0 to 23$"),
        ("0 0,4,24 * * *", "is invalid: bad hour '24': use 0 to 23$"),
        ("0 0 0 * *", "is invalid: bad day of the month '0': use 1 to 31, L "),
        ("0 0 1W,15W * *", "is invalid: bad day of the month '1W,15W': .*alone in its field, 15W"),
        ("0 0 * 13 *", "is invalid: bad month '13': use 1 to 12, or jan to dec$"),
        ("0 0 * january *", "is invalid: bad month 'january': use 1 to 12, or jan to dec$"),
        ("0 0 * * 8", r"is invalid: bad day of the week '8': use 0 to 7 \(Sunday is 0 and 7\), sun to sat"),
        ("0 0 * * MON-", "is invalid: bad day of the week 'MON-'"),
        ("0 0 * * 5#6", "is invalid: bad day of the week '5#6'"),
        ("0,,5 0 * * *", "is invalid: bad minute ''"),
        ("0 0 * * MON,FRI#2", "mixes weekdays with and without a number"),
        ("*/0 * * * *", r"the minute '\*/0' must have a step from 1 to 59"),
        ("*/61 * * * *", r"the minute '\*/61' must have a step from 1 to 59"),
        ("0 */24 * * *", r"the hour '\*/24' must have a step from 1 to 23"),
        ("R * * * *", "'R' is random and would differ between beats; use H"),
        ("0 R(0-5) * * *", r"'R\(0-5\)' is random"),
        ("every day", "has 2 fields"),
    ],
)
def test_an_invalid_expression_is_refused_at_definition(expression: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^cron .*{message}"):
        Cron(expression)


def test_a_field_of_seconds_is_named_like_the_others() -> None:
    with pytest.raises(InvalidOption, match=r"is invalid: bad second '75': use 0 to 59$"):
        Cron("75 0 0 * * *", seconds=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"dst_gap": "before"}, "^dst_gap='before': must be 'run_after' or 'skip'$"),
        ({"dst_fold": "third"}, "^dst_fold='third': must be one of 'first', 'second', 'both'$"),
        ({"tz": "Europe/paris"}, "^tz='Europe/paris' is not a time zone: did you mean 'Europe/Paris'"),
        ({"tz": "../../etc/passwd"}, "is not a time zone: "),
        ({"tz": "Europe"}, "is not a time zone: "),
        ({"tz": "Qqqqqqqq"}, "is not a time zone: names look like 'Europe/Paris'$"),
    ],
)
def test_an_invalid_option_is_refused_with_its_remedy(option: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Cron("* * * * *", **option)


@pytest.fixture
def host_without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in sys.modules.copy() if name.startswith("tzdata.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath([])
    # Zones held by other tests remain the same objects.
    zoneinfo.ZoneInfo.clear_cache(only_keys=[_FAR])
    yield
    zoneinfo.reset_tzpath()


@pytest.mark.usefixtures("host_without_zones")
def test_a_host_without_time_zones_is_told_what_is_missing() -> None:
    with pytest.raises(InvalidOption) as refused:
        Cron("* * * * *", _FAR)

    assert str(refused.value) == (
        "tz='Antarctica/Troll' is not a time zone: this host has no time zone data: install the package tzdata"
    )


def test_either_day_field_is_enough_as_in_cron_unless_both_are_requested() -> None:
    assert first(Cron("0 0 13 * 5"), "2026-02-01", 3) == ["2026-02-06 00:00", "2026-02-13 00:00", "2026-02-20 00:00"]
    assert first(Cron("0 0 13 * 5", both_days=True), "2026-02-01", 2) == ["2026-02-13 00:00", "2026-03-13 00:00"]
    assert first(Cron("0 0 * * 5", both_days=True), "2026-02-01", 1) == ["2026-02-06 00:00"]


def test_a_step_starts_over_in_each_hour() -> None:
    assert first(Cron("*/7 * * * *"), "2026-01-01 00:49", 3) == [
        "2026-01-01 00:56",
        "2026-01-01 01:00",
        "2026-01-01 01:07",
    ]


@pytest.mark.parametrize(
    ("day", "month", "due"),
    [
        ("15W", 5, "2026-05-15"),  # a Friday
        ("16W", 5, "2026-05-15"),  # a Saturday
        ("17W", 5, "2026-05-18"),  # a Sunday
        ("1W", 8, "2026-08-03"),  # a Saturday: the day before is another month's
        ("31W", 5, "2026-05-29"),  # a Sunday: the day after is
        ("31W", 2, "2026-02-27"),  # the 28th is the last, and a Saturday
    ],
)
def test_the_weekday_nearest_to_a_day_stays_in_its_month(day: str, month: int, due: str) -> None:
    assert first(Cron(f"0 0 {day} {month} *"), "2026-01-01", 1) == [f"{due} 00:00"]


def test_29_february_is_found_across_a_century_without_one() -> None:
    assert first(Cron("0 0 29 2 *"), "2092-03-01", 2) == ["2096-02-29 00:00", "2104-02-29 00:00"]
    assert first(Cron("0 0 29 2 1", both_days=True), "2096-01-01", 1) == ["2112-02-29 00:00"]


def test_no_instant_is_due_after_the_end_of_the_calendar() -> None:
    assert Cron("0 0 29 2 *").next_after(ms("9996-03-01 00:00")) is None
    assert Cron("* * * * *").next_after(ms("9999-12-31 12:00")) is None
    assert Cron("* * * * *", "Europe/Paris").next_after(ms("9999-12-31 12:00")) is None
    assert Cron("0 0 29 2 *", "Europe/Paris").next_after(ms("9996-03-01 00:00")) is None
    assert Cron("*/5 1 29 2 *", "Europe/Paris", dst_fold="both").next_after(ms("9996-03-01 00:00")) is None


def test_instants_before_the_epoch_follow_the_same_rule() -> None:
    assert Cron("0 12 * * *", "Europe/Paris").next_after(-(2**60)) is not None
    assert Cron("0 12 * * *").next_after(ms("1912-06-01 00:00")) == ms("1912-06-01 12:00")


def test_h_derives_from_the_name_of_the_schedule_and_never_changes() -> None:
    rules = [for_schedule(cron("H H * * *"), name) for name in ("shop.nightly", "shop.nightly", "shop.weekly")]

    assert rules[0] == rules[1] != rules[2]
    described = [rule.describe() for rule in rules]
    assert described[0] == described[1] != described[2]


def test_names_spread_over_the_minutes() -> None:
    minutes = {Cron("H * * * *").with_hash_id(f"schedule-{n}").fields.minutes for n in range(1000)}

    assert len(minutes) == 60


def test_a_hashed_day_exists_in_each_month() -> None:
    days = {Cron("0 0 H * *").with_hash_id(f"{n}").fields.days.bit_length() - 1 for n in range(500)}

    assert days == {*range(1, 29)}


def test_h_works_within_a_range_and_with_a_step() -> None:
    rule = Cron("H/15 H(0-5) * * *").with_hash_id("a")
    minutes = [minute for minute in range(60) if rule.fields.minutes >> minute & 1]

    assert len(minutes) == 4
    assert {after - before for before, after in pairwise(minutes)} == {15}
    assert rule.fields.hours < 1 << 6


def test_a_rule_without_h_is_the_same_for_every_schedule() -> None:
    rule = cron("0 0 * * THU")

    assert for_schedule(rule, "a") is rule
    assert Cron("0 0 * * THU").with_hash_id("a").hash_id == ""
    assert Cron("H * * * *", hash_id="mine").with_hash_id("a").hash_id == "mine"


def test_a_rule_is_a_value() -> None:
    rule = Cron("30 2 * * *", "Europe/Paris", dst_fold="second")

    copy = pickle.loads(pickle.dumps(rule))
    assert copy == rule
    assert hash(copy) == hash(rule)
    assert copy.next_after(0) == rule.next_after(0)
    assert Cron("30 2 * * *", "Europe/Berlin") != rule


def test_rules_of_one_expression_share_its_computations() -> None:
    assert Cron("1 2 3 4 *", "Asia/Tokyo").fields is Cron("1 2 3 4 *", "Europe/Paris").fields


def test_an_app_imports_the_modules_of_its_schedules() -> None:
    program = "import sys\nfrom taskmq import TaskMQ\napp = TaskMQ('memory://')\n" + "".join(
        f"{schedule}@app.task(name='{number}')\ndef tick(): ...\n"
        "print(sorted({'croniter', 'dateutil', 'taskmq.schedules.triggers.cron_rule'} & set(sys.modules)))\n"
        for number, schedule in enumerate(("", "@app.every('5s')\n", "@app.cron('* * * * *')\n"))
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines() == [
        "[]",
        "['taskmq.schedules.triggers.cron_rule']",
        "['croniter', 'dateutil', 'taskmq.schedules.triggers.cron_rule']",
    ]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'taskmq\.schedules\.triggers' has no attribute 'nothing'$"):
        _ = triggers.nothing


def _steps(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.tuples(number, number)
        .map(sorted)
        .filter(lambda ends: ends[0] < ends[1])
        .map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.integers(2, max(high // 2, 2)).map(lambda step: f"*/{step}"),
        st.lists(number, min_size=2, max_size=4, unique=True).map(lambda values: ",".join(map(str, sorted(values)))),
    )


_times = st.tuples(_steps(0, 59), _steps(0, 23))
_days = st.one_of(_steps(1, 28), st.sampled_from(["L", "15,L", "31", "30"]))
_months = st.one_of(st.just("*"), _steps(1, 12))
_weekdays = st.one_of(_steps(0, 6), st.sampled_from(["MON-FRI", "sun", "5#2", "1#1,3#4", "L5", "2#5"]))
_walls = st.integers(0, 2**31).map(lambda seconds: _EPOCH + timedelta(seconds=seconds))


@given(_times, _days, _months, _weekdays, _walls)
def test_instants_without_a_zone_match_croniter(
    times: tuple[str, str], day: str, month: str, weekday: str, start: datetime
) -> None:
    # The combination has its own test: croniter's "L" beside a weekday is not one of the two.
    expression = (
        f"{' '.join(times)} {day} {month} *" if start.second % 2 else f"{' '.join(times)} * {month} {weekday}"
    )
    try:
        rule = Cron(expression)
    except InvalidOption as error:
        # Anything else is unexpected.
        if "is never due" in str(error):
            return
        raise
    naive = start.replace(tzinfo=None)
    reference = croniter(expression, naive, max_years_between_matches=60)

    said = islice(instants_after(rule, (start - _EPOCH) // timedelta(milliseconds=1)), 12)
    assert [_EPOCH.replace(tzinfo=None) + timedelta(milliseconds=each) for each in said] == [
        reference.get_next(datetime) for _ in range(12)
    ]


_ZONES = ("Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "America/Sao_Paulo", "UTC")


_starts = st.datetimes(datetime(2000, 1, 1), datetime(2036, 1, 1))  # noqa: DTZ001
_hours_and_zones = st.one_of(
    # cronsim loses the hour after a change by 30 minutes, and moves a step of hours that falls into a gap to its end.
    st.tuples(st.sampled_from(["*", "*/2", "*/3"]), st.sampled_from(["Europe/Paris", "America/New_York", "UTC"])),
    st.tuples(st.integers(0, 23).map(str), st.sampled_from([*_ZONES, "Africa/Cairo", "America/Havana"])),
)


@pytest.mark.simulation
@given(
    st.integers(0, 59).map(str),
    _hours_and_zones,
    st.one_of(st.just("*"), st.sampled_from(["1", "L", "15", "10-20"])),
    _starts,
)
def test_default_instants_match_cronsim(
    minute: str, hour_and_zone: tuple[str, str], day: str, start: datetime
) -> None:
    hour, zone = hour_and_zone
    rule = Cron(f"{minute} {hour} {day} * *", zone)
    aware = start.replace(microsecond=0, tzinfo=UTC).astimezone(rule.zone)
    reference = CronSim(rule.expression, aware)

    said = islice(instants_after(rule, (aware - _EPOCH) // timedelta(milliseconds=1)), 400)
    assert [_EPOCH + timedelta(milliseconds=each) for each in said] == [
        next(reference).astimezone(UTC) for _ in range(400)
    ]


@given(_times, _days, _weekdays, st.sampled_from(_ZONES), st.integers(0, 2**41), st.integers(0, 2**30))
def test_every_moment_between_two_instants_has_the_same_next_one(
    times: tuple[str, str], day: str, weekday: str, zone: str, instant: int, wait: int
) -> None:
    for fold in ("first", "second", "both"):
        try:
            rule = Cron(f"{' '.join(times)} {day} * {weekday}", zone, dst_fold=fold)
        except InvalidOption:
            return
        later = rule.next_after(instant)
        assert later is not None
        assert later > instant
        assert rule.next_after(min(instant + wait, later - 1)) == later


def test_an_instant_takes_microseconds_and_keeps_no_object() -> None:
    rule = Cron("*/5 9-17 * * MON-FRI", "Europe/Paris")

    assert not hasattr(rule, "__dict__")
    assert not hasattr(rule.fields, "__dict__")
    assert isinstance(rule.fields, Fields)
