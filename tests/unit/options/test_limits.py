"""Limits in the options of tasks."""

from typing import Any, cast

import pytest

from taskmq import Concurrency, Context, InvalidArguments, InvalidOption, RateLimit, task
from taskmq.contracts.stores import PlaceDemand, RateDemand
from taskmq.model.keys import line_key, once_key
from taskmq.options.limits import check_shared, why_limited


def demands(*args: Any, **options: Any) -> list[Any]:
    @task(name="pay", **options)
    async def pay(account: str, region: str = "north", context: Context | None = None) -> None: ...

    return [limit.demand(args, {}, tenant=None) for limit in pay.limits]


@pytest.mark.parametrize(
    ("rate", "interval"),
    [
        ("100/s", 0.01),
        ("10/m", 6.0),
        (" 10 / min", 6.0),
        ("500/h", 7.2),
        ("1/d", 86_400.0),
        ("1/30s", 30.0),
        ("3/1m30s", 30.0),
        ("100000/s", 0.00001),
    ],
)
def test_a_rate_is_a_number_per_period(rate: str, interval: float) -> None:
    (demand,) = demands("ann", rate_limit=rate)

    assert demand.key == "rate:pay"
    assert demand.interval == pytest.approx(interval)


@pytest.mark.parametrize(
    "rate", ["", "s", "10", "/s", "0/s", "-1/s", "1.5/s", "10/x", "10/0s", "10//s", "1000000/s", "1/90d", 5]
)
def test_impossible_rates_are_refused(rate: Any) -> None:
    with pytest.raises(InvalidOption, match="rate_limit"):
        demands("ann", rate_limit=RateLimit(rate))


@pytest.mark.parametrize(
    "options",
    [
        {"rate_limit": 100},
        {"rate_limit": RateLimit},
        {"rate_limit": ["1/s", None]},
        {"concurrency": "5"},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 2.0},
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"task .*pay: {next(iter(options))}"):
        demands("ann", **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateLimit("1/s", burst=0),
        lambda: RateLimit("1/s", burst=True),
        lambda: RateLimit("1/s", key=5),  # type: ignore[arg-type]
        lambda: RateLimit("1/s", name=""),
        lambda: RateLimit("1/s", on_failure="maybe"),  # type: ignore[arg-type]
        lambda: Concurrency(0),
        lambda: Concurrency(1, key=""),
        lambda: Concurrency(1, on_failure=None),  # type: ignore[arg-type]
    ],
)
def test_impossible_limits_are_refused(make: Any) -> None:
    with pytest.raises(InvalidOption):
        make()


def test_a_limit_is_shared_by_all_calls_unless_it_has_a_key() -> None:
    assert demands("ann", concurrency=3) == [PlaceDemand(key="places:pay", places=3)]
    assert demands("ann", concurrency=Concurrency(3, key="account")) == [PlaceDemand(key="places:pay:ann", places=3)]
    assert demands("ann", rate_limit=RateLimit("1/s", key="{account}:{region}", burst=7)) == [
        RateDemand(key="rate:pay:ann:north", interval=1.0, burst=7)
    ]
    by_function = Concurrency(1, key=lambda account, region="north": region.upper())
    assert demands("ann", "south", concurrency=by_function) == [PlaceDemand(key="places:pay:SOUTH", places=1)]


def test_a_key_without_a_matching_parameter_is_refused_at_definition() -> None:
    with pytest.raises(InvalidOption, match="concurrency: key='acount' is none of its parameters"):
        demands("ann", concurrency=Concurrency(1, key="acount"))


def test_arguments_without_a_valid_key_are_reported() -> None:
    with pytest.raises(InvalidArguments, match="concurrency: key"):
        demands("", concurrency=Concurrency(1, key="account"))


def test_a_task_may_have_several_limits() -> None:
    several = demands(
        "ann", rate_limit=["10/s", RateLimit("1000/h", key="account")], concurrency=[5, Concurrency(1, key="account")]
    )

    assert [demand.key for demand in several] == ["rate:pay", "rate:pay#2:ann", "places:pay", "places:pay#2:ann"]


def test_a_shared_limit_is_identified_by_its_name() -> None:
    assert demands("ann", rate_limit=RateLimit("1/s", name="stripe"))[0].key == "rate:stripe"
    with pytest.raises(InvalidOption, match="two limits of one task have the name 'stripe'"):
        demands("ann", rate_limit=[RateLimit("1/s", name="stripe"), RateLimit("9/m", name="stripe")])


def test_the_demands_of_a_call_with_a_plain_key_are_known_while_it_travels() -> None:
    limits = [
        Concurrency(2, key="account"),
        Concurrency(3, name="all"),
        Concurrency(1, key=lambda account, *_: account, name="by code"),
    ]

    @task(name="pay", rate_limit="10/s", concurrency=limits)
    async def pay(account: str, region: str = "north") -> None: ...

    plain = [limit.plain_demand(("ann",), {}, tenant="acme") for limit in pay.limits]
    decoded = [limit.demand(("ann",), {}, tenant="acme") for limit in pay.limits]

    assert plain == [*decoded[:3], None]


def test_the_limit_of_a_tenant_is_shown_without_its_prefix() -> None:
    limits = (Concurrency(1).demand("@acme:settle:42"), RateLimit("1/s").demand("mail.send"))

    assert [why_limited(demand.key) for demand in limits] == [
        "as many jobs run as the concurrency limit 'settle:42' of its task allows",
        "as many jobs have started as the rate limit 'mail.send' of its task allows",
    ]


def test_a_job_that_waits_for_its_key_does_not_show_the_key() -> None:
    key = once_key("shop.pay", "order:17", tenant="acme")

    assert why_limited(key) == "another job with its idempotency key is under way"


def test_a_job_behind_another_of_its_order_key_says_so() -> None:
    assert why_limited(line_key("ledger", "acme", tenant="t")) == "an earlier job with its order key has not ended"


@pytest.mark.parametrize("options", [{"burst": 2}, {"on_failure": "open"}])
def test_an_invalid_strict_rate_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="strict"):
        RateLimit("1/s", strict=True, **options)


@pytest.mark.parametrize(
    ("one", "another", "said"),
    [
        (RateLimit("1/s", name="stripe"), RateLimit("2/s", name="stripe"), "1/s, burst 1 and 2/s, burst 1"),
        (
            RateLimit("1/s", name="stripe"),
            RateLimit("1/s", name="stripe", strict=True),
            "1/s, burst 1 and 1/s, strict",
        ),
        (Concurrency(1, name="stripe"), Concurrency(2, name="stripe"), "1 at a time and 2 at a time"),
    ],
)
def test_tasks_that_share_a_limit_must_define_it_alike(
    one: RateLimit | Concurrency, another: RateLimit | Concurrency, said: str
) -> None:
    option = "rate_limit" if isinstance(one, RateLimit) else "concurrency"

    @task(name="gated", **cast("Any", {option: one}))
    async def gated() -> None: ...

    @task(name="other", **cast("Any", {option: another}))
    async def other() -> None: ...

    with pytest.raises(InvalidOption, match=f"gated and other share the limit 'stripe', but define it as {said}"):
        check_shared([(each.name, limit) for each in (gated, other) for limit in each.limits])
