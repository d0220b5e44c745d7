"""Every option of a schedule through every door that makes schedules, against a real server and store."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.api.schedules import ChangeScheduleBody, PutScheduleBody, ScheduleFields
from taskmq.errors import InvalidOption
from taskmq.model.envelope import decode_envelope
from taskmq.schedules.decorators import CronOptions, EveryOptions
from taskmq.schedules.triggers import cron, every
from tests.cli.doors import Site, open_site
from tests.cli.kit import run_here

pytestmark = pytest.mark.real_time

_START: Final = datetime(2098, 1, 31, 9, tzinfo=UTC)
_ANCHOR: Final = _START + timedelta(minutes=7)
_END: Final = datetime(2099, 1, 31, 9, tzinfo=UTC)
_CRON: Final = {"cron": "30 2 * * *"}
_EVERY: Final = {"every": "1h"}


class _Value(msgspec.Struct, frozen=True):
    """An option with the rule that it is given with: in Python, in a JSON body, and as arguments of a command."""

    rule: Mapping[str, str]
    python: Any
    body: Any
    flags: tuple[str, ...]
    further: Mapping[str, Any] = {}


_VALUES: Final[Mapping[str, _Value]] = {
    "tz": _Value(_CRON, "Europe/Paris", "Europe/Paris", ("--tz", "Europe/Paris")),
    "seconds": _Value({"cron": "5 30 2 * * *"}, True, True, ("--seconds",)),
    "dst_gap": _Value(_CRON, "skip", "skip", ("--dst-gap", "skip")),
    "dst_fold": _Value(_CRON, "both", "both", ("--dst-fold", "both")),
    "both_days": _Value({"cron": "30 2 13 * 5"}, True, True, ("--both-days",)),
    "phase": _Value(_EVERY, "5m", "5m", ("--phase", "5m")),
    "anchor": _Value(_EVERY, _ANCHOR, "2098-01-31T09:07:00Z", ("--anchor", "2098-01-31T09:07Z")),
    "start": _Value(_CRON, _START, "2098-01-31T09:00:00Z", ("--start", "2098-01-31T09:00Z")),
    "end": _Value(_CRON, _END, "2099-01-31T09:00:00Z", ("--end", "2099-01-31T09:00Z")),
    "max_runs": _Value(
        _CRON, 3, 3, ("--max-runs", "3", "--start", "2098-01-31T09:00Z"), {"start": (_START, "2098-01-31T09:00:00Z")}
    ),
    "exclude": _Value(
        _CRON,
        ["sat", "12-25", date(2098, 4, 3)],
        ["sat", "12-25", "2098-04-03"],
        ("--exclude", "sat", "--exclude", "12-25", "--exclude", "2098-04-03"),
    ),
    "catchup": _Value(_EVERY, "all", "all", ("--catchup", "all")),
    "late_after": _Value(_EVERY, "2m", "2m", ("--late-after", "2m")),
    "catchup_window": _Value(_EVERY, "2h", "2h", ("--catchup-window", "2h")),
    "catchup_limit": _Value(_EVERY, 7, 7, ("--catchup-limit", "7")),
    "catchup_rate": _Value(_EVERY, 5, 5, ("--catchup-rate", "5")),
    "overlap": _Value(_EVERY, "skip", "skip", ("--overlap", "skip")),
    "max_concurrency": _Value(
        _EVERY, 3, 3, ("--max-concurrency", "3", "--overlap", "skip"), {"overlap": ("skip", "skip")}
    ),
    "on_resume": _Value(_EVERY, "catchup", "catchup", ("--on-resume", "catchup")),
    "jitter": _Value(_EVERY, "5m", "5m", ("--jitter", "5m")),
}
_OF_POLICY: Final = frozenset(
    {"catchup", "late_after", "catchup_window", "catchup_limit", "catchup_rate", "overlap", "max_concurrency"}
    | {"on_resume", "jitter"}
)
# These have a value of each kind.
_COMMON: Final = ("tz", "start", "exclude", "catchup", "max_concurrency", "jitter")
_NIGHTLY: Final = pytest.mark.nightly(
    "tests/cli/test_schedule_doors.py::test_an_option_has_the_same_effect_through_every_door"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("shop")) as found:
        yield found


def _by_code(site: Site, name: str, option: str) -> None:
    value = _VALUES[option]
    given = {option: value.python} | {other: pair[0] for other, pair in value.further.items()}
    limits = {each: one for each, one in given.items() if each not in _OF_POLICY}
    trigger = cron(value.rule["cron"], **limits) if "cron" in value.rule else every(value.rule["every"], **limits)
    policy: Any = {each: one for each, one in given.items() if each in _OF_POLICY}
    site.app.schedules.add(name, site.task, trigger, args=(1,), **policy)


def _body(option: str) -> dict[str, Any]:
    value = _VALUES[option]
    return {**value.rule, option: value.body, **{other: pair[1] for other, pair in value.further.items()}}


def _by_put(site: Site, name: str, option: str) -> None:
    with site.client() as client:
        client.schedules.put(name, msgspec.convert({"task": "double", "args": [1], **_body(option)}, PutScheduleBody))


def _by_change(site: Site, name: str, option: str) -> None:
    with site.client() as client:
        start = {"cron": "0 0 * * *"} if "cron" in _VALUES[option].rule else {"every": "2h"}
        client.schedules.put(name, msgspec.convert({"task": "double", "args": [1], **start}, PutScheduleBody))
        client.schedules.change(name, msgspec.convert(_body(option), ChangeScheduleBody))


def _by_command(site: Site, name: str, option: str) -> None:
    rule = [each for key, text in _VALUES[option].rule.items() for each in (f"--{key}", text)]
    tokens = ("schedule", "add", name, "double", "--args", "[1]", *rule, *_VALUES[option].flags)
    done = run_here(site.folder, "--app", "shop:app", *tokens)
    assert done.code == 0, done.err


_DOORS: Final[Mapping[str, Callable[[Site, str, str], None]]] = {
    "code": _by_code,
    "put": _by_put,
    "change": _by_change,
    "command": _by_command,
}


def test_every_option_of_the_decorators_is_walked_and_is_a_field_of_the_body() -> None:
    # `name` of a decorator is the path's.
    taken = {*EveryOptions.__annotations__, *CronOptions.__annotations__} - {"name"}

    assert set(_VALUES) == taken
    assert taken | {"cron", "every", "at", "job"} == set(ScheduleFields.__struct_fields__)


@pytest.mark.parametrize(
    "option", [*_COMMON, *(pytest.param(option, marks=_NIGHTLY) for option in _VALUES if option not in _COMMON)]
)
def test_an_option_has_the_same_effect_through_every_door(site: Site, option: str) -> None:
    found: dict[str, tuple[object, object]] = {}
    for door, make in _DOORS.items():
        name = f"{option}-{door}"
        make(site, name, option)
        entry = site.app.schedules.entry(name)
        found[door] = entry.trigger, entry.policy
        with site.client() as client:
            shown = msgspec.to_builtins(client.schedules.get(name))
        assert shown[option if option != "anchor" else "phase"]

    assert found == dict.fromkeys(found, found["code"])


def test_options_of_the_jobs_of_a_schedule_arrive_in_its_jobs_through_every_door(site: Site) -> None:
    options = {"timeout": "90s", "max_attempts": 2, "priority": 8, "labels": {"team": "ops"}}
    body = {"task": "double", "args": [1], "every": "1h", "job": options}
    site.app.schedules.add("job-code", site.task, every("1h"), args=(1,), job_options=options)  # type: ignore[arg-type]
    with site.client() as client:
        client.schedules.put("job-put", msgspec.convert(body, PutScheduleBody))
        client.schedules.put("job-change", msgspec.convert({**body, "job": None}, PutScheduleBody))
        client.schedules.change("job-change", msgspec.convert({"job": options}, ChangeScheduleBody))
        client.schedules.change("job-change", msgspec.convert({"jitter": "1m"}, ChangeScheduleBody))
    flags = ("--timeout", "90s", "--max-attempts", "2", "--priority", "8", "--label", "team=ops")
    tokens = ("schedule", "add", "job-command", "double", "--args", "[1]", "--every", "1h", *flags)
    assert run_here(site.folder, "--app", "shop:app", *tokens).code == 0

    found = {door: _job_of(site.app, f"job-{door}") for door in ("code", "put", "change", "command")}

    assert found == dict.fromkeys(found, found["code"])
    assert found["code"][0].timeout == 90_000


def _job_of(app: TaskMQ, name: str) -> tuple[Any, ...]:
    record = app.jobs.get(app.schedules.run(name))
    assert record.detail is not None
    return decode_envelope(record.body).run, record.priority, record.detail.labels


def test_a_field_that_does_not_fit_the_rule_is_refused(site: Site) -> None:
    with site.client() as client:
        for fields, message in (
            ({"every": "1h", "seconds": True}, "seconds has no effect with every"),
            ({"at": "2099-01-31T09:00:00Z", "max_runs": 3}, "max_runs has no effect with at"),
            ({"every": "1h", "job": {"timeout": "2h"}}, "must be at most the task's, 3600 s"),
            ({"every": "1h", "job": {"owner": "bob"}}, "owner 'bob' is another user"),
        ):
            body = msgspec.convert({"task": "double", "args": [1], **fields}, PutScheduleBody)
            with pytest.raises(InvalidOption, match=message):
                client.schedules.put("refused", body)
