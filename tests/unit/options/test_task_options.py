import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.envelope import Envelope, decode_envelope, encode_envelope
from taskmq.model.resources import PROCESS
from taskmq.model.retry import RetryPolicy, RunOptions
from taskmq.options.plans import CallPlan, TaskPlan, plan_call, plan_task
from taskmq.options.task_options import CallOptions, TaskOptions

_UTC_NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
_NOON = int(_UTC_NOON.timestamp() * 1000)


def build_task_plan(is_async: bool = False, /, **options: Any) -> TaskPlan:
    return plan_task(options, function="shop.sell", default_name="shop.sell", is_async=is_async)


def build_call_plan(base: CallPlan | None = None, /, **options: Any) -> CallPlan:
    return plan_call(base or CallPlan(), options, task="shop.sell")


def test_a_task_without_options_has_the_documented_defaults() -> None:
    plan = build_task_plan()

    assert plan == TaskPlan(
        name="shop.sell",
        names_queue=False,
        call=CallPlan(queue="default"),
        retry=RetryPolicy(),
        timeout=None,
        ack="late",
        executor="thread",
        result=None,
    )


def test_a_soft_timeout_comes_before_the_hard_one() -> None:
    assert build_task_plan(soft_timeout="10s", timeout="20s").soft_timeout == 10
    assert build_task_plan(soft_timeout=1.5).soft_timeout == 1.5
    assert build_task_plan(soft_timeout=None, timeout=5).soft_timeout is None
    with pytest.raises(InvalidOption, match=r"task shop\.sell: soft_timeout='20s': must be less than timeout=20"):
        build_task_plan(soft_timeout="20s", timeout=20)


def test_every_option_ends_up_in_the_plan() -> None:
    retry = RetryPolicy(max_attempts=2)

    plan = build_task_plan(
        name="sell",
        queue="sales",
        priority=9,
        delay="2s",
        expires=timedelta(hours=1),
        retry=retry,
        timeout="1m30s",
        ack="late",
        executor="process",
        result=True,
        tenant="acme",
        meta={"team": "red"},
    )

    assert plan == TaskPlan(
        name="sell",
        names_queue=True,
        call=CallPlan(
            queue="sales",
            priority=9,
            delay=2000,
            expires=3_600_000,
            tenant="acme",
            meta={"team": "red"},
            longest=90_000,
        ),
        retry=retry,
        timeout=90.0,
        ack="late",
        executor="process",
        result=True,
        needs={PROCESS: 1},
    )


def test_a_task_with_limited_concurrency_needs_one_of_its_permits() -> None:
    plan = build_task_plan(name="sell", worker_concurrency=3, resources={"gpu": 1})

    assert (plan.worker_concurrency, plan.needs) == (3, {"gpu": 1, plan.one_of: 1})
    assert plan.resources == {"gpu": 1}


def test_retries_and_timeout_can_be_disabled() -> None:
    plan = build_task_plan(retry=None, timeout=None)

    assert (plan.retry, plan.timeout) == (None, None)


def test_ack_early_means_at_most_once() -> None:
    assert build_task_plan(ack="early").retry is None
    assert build_task_plan(ack="early", retry=None).ack == "early"
    with pytest.raises(InvalidOption, match=r"ack='early' runs at most once: it cannot be combined with retry"):
        build_task_plan(ack="early", retry=RetryPolicy())
    with pytest.raises(InvalidOption, match=r"runs at most once: it cannot be combined with preemptible"):
        build_task_plan(ack="early", preemptible=True)


@pytest.mark.parametrize(
    ("is_async", "asked", "resolved"),
    [
        (True, "auto", "async"),
        (True, "async", "async"),
        (False, "auto", "thread"),
        (False, "thread", "thread"),
        (False, "process", "process"),
    ],
)
def test_the_executor_is_derived_from_the_kind_of_function(*, is_async: bool, asked: str, resolved: str) -> None:
    assert build_task_plan(is_async, executor=asked).executor == resolved


@pytest.mark.parametrize(("is_async", "asked"), [(True, "thread"), (True, "process"), (False, "async")])
def test_an_executor_that_cannot_run_the_function_is_refused(*, is_async: bool, asked: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^task shop.sell: executor='{asked}' needs"):
        build_task_plan(is_async, executor=asked)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("que", "queue"), ("Queue", "queue"), ("timout", "timeout"), ("retries", "retry"), ("excutor", "executor")],
)
def test_a_misspelt_option_is_refused_with_a_suggestion(misspelt: str, meant: str) -> None:
    with pytest.raises(
        InvalidOption, match=rf"^task shop.sell: unknown option '{misspelt}'; did you mean '{meant}'\?$"
    ):
        build_task_plan(**{misspelt: 1})


def test_an_unknown_option_is_refused_with_all_valid_ones() -> None:
    with pytest.raises(
        InvalidOption, match=rf"unknown option 'zzzz'; known: {', '.join(TaskOptions.__annotations__)}"
    ):
        build_task_plan(zzzz=1)
    with pytest.raises(
        InvalidOption, match=rf"unknown option 'zzzz'; known: {', '.join(CallOptions.__annotations__)}"
    ):
        build_call_plan(zzzz=1)


@pytest.mark.parametrize("option", ["eta", "job_id", "headers"])
def test_a_call_option_is_not_a_task_option(option: str) -> None:
    with pytest.raises(InvalidOption, match=rf"unknown option '{option}'"):
        build_task_plan(**{option: "x"})


@pytest.mark.parametrize("option", ["name", "soft_timeout", "ack", "executor", "result"])
def test_a_task_option_is_not_a_call_option(option: str) -> None:
    with pytest.raises(InvalidOption, match=rf"unknown option '{option}'"):
        build_call_plan(**{option: None})


_LONG = timedelta(days=365_001)
_NOT_FOR_EITHER: list[dict[str, Any]] = [
    {"queue": ""},
    {"queue": "amq.x"},
    {"queue": "x.dlq"},
    {"queue": 5},
    {"priority": 10},
    {"priority": -1},
    {"priority": "5"},
    {"priority": 2.5},
    {"priority": True},
    {"delay": -1},
    {"delay": "soon"},
    {"delay": _LONG},
    {"expires": -1},
    {"expires": "never"},
    {"expires": _LONG},
    {"expires": datetime(2030, 1, 1)},  # noqa: DTZ001 - that it has no zone is what is refused
    {"expires": datetime(1969, 12, 31, tzinfo=UTC)},
    {"tenant": ""},
    {"tenant": 5},
    {"tenant": "x" * 256},
    {"tenant": "é" * 128},
    {"meta": {"a": 1}},
    {"meta": {1: "a"}},
    {"meta": {"": "a"}},
    {"meta": ["a"]},
    {"meta": "a"},
]
_NOT_FOR_TASKS: list[dict[str, Any]] = [
    {"queue": None},
    {"delay": None},
    {"name": ""},
    {"name": "a b"},
    {"name": "x" * 129},
    {"name": 5},
    {"retry": 3},
    {"retry": True},
    {"timeout": -1},
    {"timeout": "x"},
    {"ack": "never"},
    {"ack": None},
    {"executor": "gpu"},
    {"executor": None},
    {"result": "yes"},
    {"result": None},
    {"result": 1},
    {"worker_concurrency": 0},
    {"worker_concurrency": "2"},
    {"worker_concurrency": True},
    {"preemptible": 1},
]
_NOT_FOR_CALLS: list[dict[str, Any]] = [
    {"eta": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"eta": "tomorrow"},
    {"eta": 5},
    {"eta": datetime(1969, 12, 31, tzinfo=UTC)},
    {"eta": datetime.max.replace(tzinfo=UTC)},
    {"job_id": ""},
    {"job_id": 5},
    {"job_id": "a\nERROR"},
    {"job_id": "a\x1b[2J"},
    {"job_id": "x" * 256},
    {"headers": {"a": 1.5}},
    {"headers": {"a": True}},
    {"headers": {"a": None}},
    {"headers": {"": "a"}},
    {"headers": {1: "a"}},
    {"headers": {"x-taskmq-attempt": 1}},
    {"headers": {"x-death": "a"}},
    {"headers": {"x-delivery-count": 1}},
    {"headers": {"x-acquired-count": 1}},
    {"headers": ["a"]},
]


@pytest.mark.parametrize("options", [*_NOT_FOR_EITHER, *_NOT_FOR_TASKS], ids=repr)
def test_an_invalid_value_is_refused_at_definition_with_function_and_option(options: dict[str, Any]) -> None:
    (option,) = options

    with pytest.raises(InvalidOption, match=rf"^task shop.sell: .*{option}"):
        build_task_plan(**options)


@pytest.mark.parametrize("options", [*_NOT_FOR_EITHER, *_NOT_FOR_CALLS], ids=repr)
def test_an_invalid_value_of_a_call_is_refused_with_task_and_option(options: dict[str, Any]) -> None:
    (option,) = options

    with pytest.raises(InvalidOption, match=rf"^task shop.sell: .*{option}"):
        build_call_plan(**options)


@given(
    st.sampled_from(sorted({*TaskOptions.__annotations__, *CallOptions.__annotations__, "zzz"})),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
        st.timedeltas(),
        st.dictionaries(st.text() | st.integers(), st.text() | st.integers() | st.floats()),
        st.lists(st.text()),
    ),
    st.booleans(),
)
def test_any_value_is_accepted_or_refused_as_an_invalid_option(option: str, value: object, is_async: bool) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: build_task_plan(is_async, **{option: value}),
        lambda: build_call_plan(**{option: value}),
    ]
    for attempt in attempts:
        try:
            attempt()
        except InvalidOption as error:
            assert str(error).startswith("task shop.sell: ")  # noqa: PT017 - either outcome is fine


def test_options_of_a_call_override_those_of_the_task() -> None:
    base = build_task_plan(queue="sales", priority=1, delay=5, expires=60, tenant="acme").call

    plan = build_call_plan(base, queue="urgent", priority=9, delay="10m", expires="1h", tenant="zen", job_id="7")

    assert plan == CallPlan(queue="urgent", priority=9, delay=600_000, expires=3_600_000, tenant="zen", job_id="7")


def test_omitted_options_of_a_call_come_from_the_task() -> None:
    base = build_task_plan(queue="sales", priority=1, delay=5, meta={"a": "b"}).call

    assert build_call_plan(base) == base
    assert build_call_plan(base, job_id="7") == CallPlan(
        queue="sales", priority=1, delay=5000, meta={"a": "b"}, job_id="7"
    )


def test_a_call_may_remove_the_priority_of_the_task() -> None:
    assert build_call_plan(build_task_plan(priority=9).call, priority=None).priority is None


def test_an_eta_overrides_the_delay_of_the_task_and_a_delay_its_eta() -> None:
    by_instant = build_call_plan(build_task_plan(delay=5).call, eta=_UTC_NOON)
    by_delay = build_call_plan(by_instant, delay=3)

    assert (by_instant.eta, by_instant.delay) == (_NOON, None)
    assert (by_delay.eta, by_delay.delay) == (None, 3000)


def test_an_expiry_instant_overrides_a_duration_and_vice_versa() -> None:
    by_instant = build_call_plan(build_task_plan(expires=5).call, expires=_UTC_NOON)
    by_duration = build_call_plan(by_instant, expires=3)

    assert (by_instant.expires_at, by_instant.expires) == (_NOON, None)
    assert (by_duration.expires_at, by_duration.expires) == (None, 3000)


def test_delay_and_eta_exclude_each_other() -> None:
    with pytest.raises(InvalidOption, match=r"^task shop.sell: delay and eta exclude each other$"):
        build_call_plan(delay=1, eta=_UTC_NOON)


def test_an_instant_keeps_its_own_zone() -> None:
    paris = _UTC_NOON.astimezone(timezone(timedelta(hours=2)))

    assert build_call_plan(eta=paris).eta == _NOON


def test_an_instant_between_two_milliseconds_is_rounded_up() -> None:
    assert build_call_plan(eta=_UTC_NOON + timedelta(microseconds=1)).eta == _NOON + 1


def test_meta_and_headers_are_merged() -> None:
    base = build_call_plan(build_task_plan(meta={"a": "1", "b": "1"}).call, headers={"x": 1, "y": "z"})

    plan = build_call_plan(base, meta={"b": "2", "c": "2"}, headers={"y": 3})

    assert plan.meta == {"a": "1", "b": "2", "c": "2"}
    assert plan.headers == {"x": 1, "y": 3}
    assert base.meta == {"a": "1", "b": "1"}


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=st.timezones())  # noqa: DTZ001
    | st.datetimes(timezones=st.just(UTC))
)
def test_an_accepted_instant_is_readable_by_the_worker(instant: datetime) -> None:
    try:
        plan = build_call_plan(eta=instant, expires=instant)
    except InvalidOption:
        return

    body = encode_envelope(Envelope(task="t", eta=plan.eta, expires=plan.expires_at))

    assert decode_envelope(body).eta == plan.eta


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"result_ttl": "soon"}, "result_ttl='soon'"),
        ({"result_ttl": 0}, "result_ttl=0: must be longer"),
        ({"result_ttl": "1h", "result": False}, "result_ttl has no effect with result=False"),
    ],
)
def test_an_impossible_result_lifetime_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        build_task_plan(**options)


def test_a_result_is_kept_for_as_long_as_the_task_says() -> None:
    assert build_task_plan(result_ttl="1m").result_ttl == 60.0


def test_options_that_the_caller_reads_itself_do_not_change_the_plan() -> None:
    assert plan_call(CallPlan(), {"labels": {"team": "ops"}}, task="shop.sell", others=("labels",)) == CallPlan()


def test_options_of_a_run_end_up_in_the_plan_of_the_call() -> None:
    base = build_task_plan(timeout="1h").call

    plan = build_call_plan(
        base, timeout="90s", max_attempts=3, retry={"backoff": "linear", "base": "1s", "cap": None, "jitter": True}
    )

    assert plan.run == RunOptions(timeout=90_000, max_attempts=3, backoff="linear", base=1_000, jitter=True)
    assert build_call_plan(plan, guarantee="at_least_once", timeout=None).run == plan.run
    assert build_call_plan(base, guarantee="at_least_once").run is None
    assert build_call_plan(guarantee="at_most_once", max_attempts=1).run == RunOptions(once=True, max_attempts=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout=0: must be at least a millisecond"),
        ({"timeout": "2h"}, "timeout='2h': must be at most the task's, 3600 s"),
        ({"max_attempts": 0}, "max_attempts=0: must be a whole number from 1 to 1,000,000"),
        ({"max_attempts": True}, "max_attempts=True: must be a whole number"),
        ({"max_attempts": "3"}, "max_attempts='3': must be a whole number"),
        ({"retry": RetryPolicy()}, "retry: must be a mapping, such as"),
        ({"retry": 3}, "retry=3: must be a mapping"),
        ({"retry": {"bace": 3}}, "retry: unknown option 'bace'; "),
        ({"retry": {"backoff": "fast"}}, "retry: backoff='fast': must be one of"),
        ({"retry": {"jitter": 1}}, "retry: jitter=1: must be True or False"),
        ({"guarantee": "once"}, "guarantee='once': must be one of 'at_least_once', 'at_most_once'"),
        ({"guarantee": "at_most_once", "max_attempts": 2}, "runs at most once: leave out max_attempts and retry"),
    ],
)
def test_a_wrong_option_of_a_run_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)):
        build_call_plan(build_task_plan(timeout="1h").call, **options)


@pytest.mark.parametrize("options", [{"guarantee": "at_least_once"}, {"max_attempts": 2}, {"retry": {"base": 1}}])
def test_a_job_of_an_early_acknowledged_task_cannot_be_repeated(options: Any) -> None:
    with pytest.raises(InvalidOption, match="at most once"):
        build_call_plan(build_task_plan(ack="early").call, **options)


def test_the_plan_of_a_job_has_the_shorter_timeout_and_its_own_guarantee() -> None:
    late, early = build_task_plan(timeout=60), build_task_plan(ack="early")

    assert late.with_run(RunOptions(timeout=5_000)).timeout == 5
    assert late.with_run(RunOptions(timeout=90_000)).timeout == 60
    assert build_task_plan().with_run(RunOptions(timeout=5_000)).timeout == 5
    assert early.with_run(RunOptions(timeout=5_000, max_attempts=9)).retry is None
    assert late.with_run(RunOptions(once=True)).ack == "early"
    assert late.with_run(RunOptions(max_attempts=2)).retry == RetryPolicy(max_attempts=2)
