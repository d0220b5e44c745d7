import pytest
from msgspec import Raw

from taskmq.errors import MalformedMessage
from taskmq.model.jobs.registrations import (
    Origin,
    RegisteredTask,
    TaskFacts,
    TaskRegistration,
    decode_registration,
    decode_told,
    encode_registration,
    encode_told,
    in_force,
)

_MINUTE = 60_000
_TASK = TaskRegistration(
    task="mail.send",
    queue="mail",
    facts=TaskFacts(priority=7, meta={"a": "b"}, tenant="acme"),
    positional=("to",),
    schema=Raw(b'{"type":"object","properties":{"to":{"type":"string"}}}'),
)


def _form(queue: str, *, first: int, last: int, origin: Origin = "broker") -> RegisteredTask:
    return RegisteredTask(
        registration=TaskRegistration(task="t", queue=queue), origin=origin, worker="w", first=first, last=last
    )


def test_a_registration_survives_its_round_trip() -> None:
    assert decode_registration(encode_registration(_TASK)) == _TASK


def test_no_registrations_mean_no_current_form() -> None:
    assert in_force([]) is None


def test_the_newest_form_applies_during_a_deploy() -> None:
    old = _form("old", first=0, last=100 * _MINUTE)
    new = _form("new", first=99 * _MINUTE, last=99 * _MINUTE)

    assert in_force([old, new]) is in_force([new, old]) is new


def test_a_withdrawn_form_stops_applying_after_half_an_hour() -> None:
    old = _form("old", first=0, last=129 * _MINUTE)
    new = _form("new", first=99 * _MINUTE, last=99 * _MINUTE)
    assert in_force([old, new]) is new

    later = _form("old", first=0, last=129 * _MINUTE + 1)

    assert in_force([later, new]) is later


def test_the_app_of_a_scheduler_overrides_forms_from_the_broker() -> None:
    own = _form("own", first=0, last=10 * _MINUTE, origin="app")
    told = _form("told", first=9 * _MINUTE, last=10 * _MINUTE)

    assert in_force([told, own]) is own


def test_tasks_are_reported_in_messages_of_bounded_size() -> None:
    large = Raw(b'{"type":"object","title":"' + b"x" * 60_000 + b'"}')
    tasks = [TaskRegistration(task=f"t{number}", queue="q", schema=large) for number in range(10)]

    messages = list(encode_told("shop", "w1", tasks))

    assert len(messages) == 3
    assert all(len(message) < 300_000 for message in messages)
    told = [decode_told(message) for message in messages]
    assert [one for part in told for one in part.tasks] == tasks
    assert {(part.app, part.worker) for part in told} == {("shop", "w1")}
    assert list(encode_told("shop", "w1", [])) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cannot decode the descriptions of tasks"),
        (b"[]", "cannot decode the descriptions of tasks"),
        (b'{"v":1,"app":"a","worker":"w","tasks":[{"task":"t"}]}', "queue"),
        (
            b'{"v":1,"app":"a","worker":"w","tasks":[{"task":"\xff","queue":"q"}]}',
            "cannot decode the descriptions of tasks",
        ),
        (b"[" * 100_000, "cannot decode the descriptions of tasks"),
        (b'{"v":2,"app":"a","worker":"w","tasks":[]}', "version 2"),
    ],
)
def test_a_registration_without_tasks_is_malformed(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode_told(body)
