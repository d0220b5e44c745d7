"""Conditions of an alert: states, hysteresis, silence; examples, and any series of figures."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.errors import InvalidOption, LimitReached
from taskmq.model.history.alerts import (
    METRICS,
    Alert,
    AlertRule,
    AlertState,
    Evaluation,
    Silence,
    check_limits,
    check_rule,
    check_silence,
    end_alerts,
    evaluate,
    is_silenced,
)

RULE = AlertRule(name="r", metric="failure_rate", threshold=0.5)


class Course:
    """A rule that is evaluated repeatedly."""

    def __init__(self, rule: AlertRule = RULE, *, silences: list[Silence] | None = None) -> None:
        self.rule = rule
        self.silences = silences or []
        self.alerts: dict[str, Alert] = {}
        self.now = 0

    def look(self, seconds: float, *, is_inhibited: bool = False, **samples: float) -> list[tuple[str, str]]:
        """Evaluate after that many seconds; return the kinds and subjects of the notices."""
        self.now += round(seconds * 1000)
        found = evaluate(self.rule, samples, self.alerts, self.now, silences=self.silences, is_inhibited=is_inhibited)
        self.alerts |= {each.subject: replace(each, version=each.version + 1) for each in found.alerts}
        return [(change.kind, change.alert.subject) for change in found.changes]

    def state(self, subject: str = "a") -> str:
        return self.alerts[subject].state.value


def test_an_alert_fires_once_and_is_resolved_once() -> None:
    course = Course()

    told = [course.look(10, a=value) for value in (0.5, 0.6, 0.7, 0.9, 0.5, 0.4)]

    assert told == [[], [("firing", "a")], [], [], [("resolved", "a")], []]
    assert (course.state(), course.alerts["a"].number) == ("resolved", 3)


def test_a_resolved_alert_may_fire_again() -> None:
    course = Course()

    told = [course.look(10, a=value) for value in (1, 0, 1, 0)]

    assert told == [[("firing", "a")], [("resolved", "a")]] * 2
    assert course.alerts["a"].number == 6


def test_a_pending_alert_fires_after_its_duration() -> None:
    course = Course(replace(RULE, pending_for=20))

    told = [course.look(10, a=1) for _ in range(4)]

    assert told == [[], [], [("firing", "a")], []]


def test_a_pending_alert_that_recovers_ends_silently() -> None:
    course = Course(replace(RULE, pending_for=20))

    told = [course.look(10, a=value) for value in (1, 0, 1, 1, 1)]

    assert told == [[], [], [], [], [("firing", "a")]]


def test_an_alert_ends_at_the_clear_threshold_of_its_rule_and_not_before() -> None:
    course = Course(replace(RULE, clear=0.2))

    told = [course.look(10, a=value) for value in (0.9, 0.4, 0.21, 0.2)]

    assert told == [[("firing", "a")], [], [], [("resolved", "a")]]


def test_an_alert_ends_after_it_has_recovered_for_its_duration() -> None:
    course = Course(replace(RULE, clear_for=20))

    told = [course.look(10, a=value) for value in (1, 0, 0, 1, 0, 0, 0)]

    assert told == [[("firing", "a")], [], [], [], [], [], [("resolved", "a")]]


def test_a_low_figure_fires_the_alert_of_a_below_rule() -> None:
    course = Course(AlertRule(name="r", metric="ended", threshold=5, below=True, clear=8))

    told = [course.look(10, a=value) for value in (5, 4, 7, 8)]

    assert told == [[], [("firing", "a")], [], [("resolved", "a")]]


def test_a_subject_without_figures_has_recovered() -> None:
    course = Course()
    course.look(10, a=1, b=1)

    assert course.look(10, b=1) == [("resolved", "a")]
    assert course.state("b") == "firing"


def test_a_continuing_alert_is_notified_again() -> None:
    course = Course(replace(RULE, repeat=30))

    told = [course.look(10, a=1) for _ in range(7)]

    assert told == [[("firing", "a")], [], [], [("again", "a")], [], [], [("again", "a")]]
    never = Course(replace(RULE, repeat=0))
    assert [never.look(10**6, a=1) for _ in range(3)] == [[("firing", "a")], [], []]


def test_no_notification_is_sent_during_a_silence_and_one_follows_it() -> None:
    course = Course(silences=[Silence(id="s", begins=0, ends=25_000)])

    told = [course.look(10, a=1, b=value) for value in (1, 0, 0, 0)]

    assert told == [[], [], [("firing", "a")], []]


def test_no_notification_is_sent_while_another_rule_suppresses_it() -> None:
    course = Course()

    assert course.look(10, a=1, is_inhibited=True) == []
    assert course.look(10, a=0) == []
    assert course.look(10, a=1, is_inhibited=True) == []
    assert course.look(10, a=1) == [("firing", "a")]


def test_a_notified_alert_reports_its_end_during_a_silence_too() -> None:
    course = Course()
    course.look(10, a=1)
    course.silences.append(Silence(id="s", begins=0, ends=90_000))

    assert course.look(10, a=1, b=1) == []
    assert course.look(10, a=0, b=0) == [("resolved", "a")]


def test_a_notified_alert_reports_its_end_while_another_rule_suppresses_it_too() -> None:
    course = Course()
    course.look(10, a=1)

    assert course.look(10, a=0, is_inhibited=True) == [("resolved", "a")]


def test_alerts_of_an_unevaluated_rule_end() -> None:
    course = Course(replace(RULE, pending_for=15))
    course.look(10, told=1, over=1)
    course.look(10, told=1)
    course.look(10, told=1, pending=1)

    found = end_alerts(course.alerts.values(), 40_000)

    assert {each.subject: (each.state, each.since) for each in found.alerts} == {
        "told": (AlertState.RESOLVED, 40_000),
        "pending": (AlertState.RESOLVED, 40_000),
    }
    assert [(each.kind, each.alert.subject) for each in found.changes] == [("resolved", "told")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"tenant": "acme"}, True),
        ({"tenant": "other"}, False),
        ({"rule": "r*", "subject": "task:*"}, True),
        ({"rule": "x*"}, False),
        ({"subject": "queue:*"}, False),
        ({"begins": 6}, False),
        ({"ends": 5}, False),
    ],
)
def test_a_silence_applies_to_its_matches(fields: dict[str, Any], expected: bool) -> None:
    alert = Alert(tenant="acme", rule="r1", subject="task:t", state=AlertState.FIRING, since=0, value=1, changed=0)
    given: dict[str, Any] = {"id": "s", "begins": 0, "ends": 9, **fields}

    assert is_silenced(alert, [Silence(**given)], 5) is expected


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"metric": "depth", "tenant": "acme"}, "instance"),
        ({"metric": "schedules_late", "tenant": "acme"}, "instance"),
        ({"metric": "depth", "each": "task"}, "queue"),
        ({"clear": 0.6}, "clear"),
        ({"clear": 0.4, "below": True}, "below"),
        ({"threshold": float("nan")}, "number"),
        ({"threshold": float("inf")}, "number"),
        ({"metric": "runs_failed", "task": "mail"}, "about runs"),
        ({"metric": "run_late", "queue": "mail"}, "about runs"),
        ({"metric": "run_duration", "each": "task"}, "about runs"),
        ({"metric": "run_duration", "at_least": 21}, "20 runs are compared"),
        ({"workflow": "nightly"}, "not about runs"),
        ({"each": "workflow"}, "not about runs"),
    ],
)
def test_an_invalid_rule_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidOption, match=word):
        check_rule(replace(RULE, **fields))


def test_a_valid_rule_is_not_refused() -> None:
    check_rule(RULE)
    check_rule(replace(RULE, clear=0.5))
    check_rule(replace(RULE, metric="depth", each="queue"))
    check_rule(replace(RULE, metric="run_duration", workflow="night*", each="workflow", at_least=20))
    assert set(METRICS) >= {"failure_rate", "silence", "depth"}


_RULES = st.builds(
    AlertRule,
    name=st.just("r"),
    metric=st.just("failures"),
    threshold=st.just(5.0),
    clear=st.sampled_from([None, 3.0, 5.0]),
    pending_for=st.sampled_from([0.0, 10.0, 25.0]),
    clear_for=st.sampled_from([0.0, 10.0, 25.0]),
    repeat=st.sampled_from([0.0, 40.0]),
)


@given(_RULES, st.lists(st.tuples(st.booleans(), st.sampled_from([None, 0.0, 4.0, 5.0, 6.0, 9.0])), max_size=30))
def test_each_end_is_reported_after_its_beginning_for_any_series_of_figures(
    rule: AlertRule, row: list[tuple[bool, float | None]]
) -> None:
    course = Course(rule)
    told: list[str] = []
    for is_inhibited, value in row:
        before = course.alerts.get("a")
        kinds = course.look(10, is_inhibited=is_inhibited, **({} if value is None else {"a": value}))
        after = course.alerts.get("a")
        told += [kind for kind, _ in kinds]
        assert len(kinds) <= 1
        if before is not None and after is not None and before.state is not after.state:
            assert after.number > before.number
            assert after.changed == course.now
        if after is not None and after.state is AlertState.FIRING and (before is None or before.state != "firing"):
            assert course.now - after.since >= rule.pending_for * 1000
        if kinds == [("firing", "a")]:
            assert after is not None
            assert after.state is AlertState.FIRING
    # Every reported beginning gets a reported end: one lies between two beginnings.
    for first, second in itertools.pairwise(told):
        assert (first == "resolved") is (second == "firing")


@given(_RULES, st.lists(st.sampled_from([0.0, 4.0, 6.0]), max_size=20))
def test_evaluating_the_same_figures_twice_changes_nothing_more(rule: AlertRule, row: list[float]) -> None:
    course = Course(rule)
    for value in row:
        course.look(10, a=value)
        if course.alerts:
            again = evaluate(rule, {"a": value}, course.alerts, course.now)
            assert again == Evaluation([], [])


def _full(tenant: str = "acme", *, channels: int = 1) -> list[AlertRule]:
    """Return as many rules as a tenant may have."""
    return [
        replace(RULE, name=f"r{number}", tenant=tenant, channels=(f"mailto:a{number % channels}@b.c",))
        for number in range(100)
    ]


def test_a_tenant_at_its_rule_limit_gets_no_more_and_may_change_existing_ones() -> None:
    present = _full()

    check_limits(replace(RULE, name="new", tenant="acme"), present[1:])
    check_limits(replace(present[5], threshold=0.7, channels=("mailto:other@b.c",)), present)
    with pytest.raises(LimitReached, match="has 100 alert rules") as caught:
        check_limits(replace(RULE, name="new", tenant="acme"), present)
    assert caught.value.most == 100


def test_the_rules_of_a_tenant_share_a_limit_of_channels() -> None:
    present = _full(channels=100)
    first = present[0]

    check_limits(replace(first, channels=("mailto:new@b.c",)), present)
    check_limits(replace(first, channels=("mailto:a1@b.c", "mailto:a2@b.c")), present)
    with pytest.raises(LimitReached, match="more than 100 channels"):
        check_limits(replace(first, channels=("mailto:new@b.c", "mailto:newer@b.c")), present)


def test_silences_are_limited_for_a_tenant_and_not_for_the_instance() -> None:
    one = Silence(id="0", tenant="acme", begins=0, ends=9)
    present = [replace(one, id=str(number)) for number in range(100)]

    check_silence(replace(one, ends=10), present)
    check_silence(replace(one, id="new"), present[1:])
    check_silence(replace(one, id="new", tenant="other"), present)
    check_silence(replace(one, id="new", tenant=""), [replace(each, tenant="") for each in present])
    with pytest.raises(LimitReached, match="has 100 silences") as caught:
        check_silence(replace(one, id="new"), present)
    assert caught.value.most == 100


def test_rules_and_channels_of_the_instance_are_not_limited() -> None:
    check_limits(replace(RULE, name="new", channels=("mailto:new@b.c",)), _full("", channels=100))
