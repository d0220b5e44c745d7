"""Submission limits of a tenant or an owner."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.jobs.quotas import (
    CountedJob,
    Quota,
    QuotaBook,
    Quotas,
    QuotaUsage,
    RunBook,
    looked_at,
    queued_limits,
    read_quotas,
    run_name,
    step_name,
    usage_name,
    usage_names,
    usage_prefix,
)

_DAY = 86_400_000


def parse_quotas(*quotas: Quota) -> Quotas:
    return Quotas(version=1, quotas={usage_name(each.tenant, each.user): each for each in quotas})


def book(quotas: Quotas, *, now: int, **kept: Any) -> QuotaBook:
    return QuotaBook(quotas, usage=kept.get("usage", {}), queued=kept.get("queued", {}), now=now)


def count_admitted(
    one: QuotaBook, count: int, *, tenant: str = "acme", user: str = "", is_queued: bool = True, is_step: bool = False
) -> int:
    job = CountedJob(tenant=tenant, user=user, size=100, is_queued=is_queued, is_step=is_step)
    return sum(one.admit(**job) is None for _ in range(count))


def postpone(full: QuotaBook) -> int:
    """Return when a step that is refused asks again."""
    excess = full.admit(tenant="acme", user="", size=100, is_queued=True, is_step=True)
    assert excess is not None
    return full.postpone(excess, size=100, pause=5_000)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"tenant": "x" * 201}, "at most 200 printable bytes"),
        ({"tenant": "a", "user": "\n"}, "at most 200 printable bytes"),
        ({"tenant": "a", "a_day": -1}, "a_day=-1"),
        ({"tenant": "a", "rate": 0}, "rate=0"),
        ({"tenant": "a", "rate": 1, "burst": 0}, "burst=0"),
        ({"tenant": "a", "user": "ann", "queued": 1}, "quota of 'a/ann': queued is counted of tenants"),
        ({"tenant": "a", "rate": 1, "on_limit": "hope"}, "on_limit='hope': refuse or wait"),
        ({"tenant": "a", "running": 1, "on_limit": "wait"}, "on_limit='wait' is for a rate"),
    ],
)
def test_an_invalid_quota_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        Quota(**values)


def test_a_quota_with_the_name_of_another_is_refused() -> None:
    with pytest.raises(InvalidOption, match="quota of 'acme' is listed as 'acme'"):
        Quotas(quotas={"acme": Quota(tenant="acme")})


def test_stored_quotas_are_read_again() -> None:
    quotas = parse_quotas(Quota(tenant="acme", rate=2.5), Quota(tenant="*", user="*", a_day=3))

    assert read_quotas(msgspec.json.encode(quotas)) == quotas
    assert read_quotas(None) == Quotas()


def test_an_individual_quota_overrides_the_general_one() -> None:
    quotas = parse_quotas(
        Quota(tenant="acme", a_day=1),
        Quota(tenant="*", a_day=2),
        Quota(tenant="acme", user="*", a_day=3),
        Quota(tenant="acme", user="ann", a_day=4),
        Quota(tenant="*", user="*", a_day=5),
    )

    def find_quotas(tenant: str, user: str) -> list[tuple[str, str | None, int | None]]:
        return [(each.tenant, each.user, each.a_day) for each in quotas.of(tenant, user)]

    assert find_quotas("acme", "ann") == [("acme", None, 1), ("acme", "ann", 4)]
    assert find_quotas("acme", "bob") == [("acme", None, 1), ("acme", "bob", 3)]
    assert find_quotas("other", "ann") == [("other", None, 2), ("other", "ann", 5)]
    assert find_quotas("other", "") == [("other", None, 2)]
    assert find_quotas("", "ann") == []
    assert [each.name for each in quotas.stored_for("other", "ann")] == ["*", "*/*"]
    assert Quotas().of("acme", "ann") == []


def test_no_two_subjects_share_a_usage_record() -> None:
    names = [usage_name("a"), usage_name("a", "b"), usage_name("a/b"), usage_name('a", "b'), usage_name("a", "")]

    assert len(set(names)) == len(names)


def test_a_day_ends_at_midnight_utc() -> None:
    quotas = parse_quotas(Quota(tenant="acme", a_day=3))
    first = book(quotas, now=5 * _DAY - 1)
    assert count_admitted(first, 5) == 3
    excess = first.admit(tenant="acme", user="", size=1, is_queued=True)
    assert excess is not None
    assert (excess.limit, excess.until) == ("a_day", 5 * _DAY)

    assert count_admitted(book(quotas, now=5 * _DAY - 1, usage=first.changed), 1) == 0
    assert count_admitted(book(quotas, now=5 * _DAY, usage=first.changed), 5) == 3


def test_a_refused_job_does_not_count() -> None:
    quotas = parse_quotas(Quota(tenant="acme", a_day=5), Quota(tenant="acme", user="ann", a_day=1))
    one = book(quotas, now=0)

    assert count_admitted(one, 3, user="ann") == 1
    assert one.changed == {
        usage_name("acme"): QuotaUsage(0, 1, 100, 0.0),
        usage_name("acme", "ann"): QuotaUsage(0, 1, 100, 0.0),
    }
    assert count_admitted(one, 9) == 4


def test_waiting_jobs_count_together_with_new_ones() -> None:
    quotas = parse_quotas(Quota(tenant="acme", queued=5))
    one = book(quotas, now=0, queued={"acme": 3})

    assert count_admitted(one, 4) == 2
    assert count_admitted(one, 4, is_queued=False) == 4
    assert queued_limits(quotas, ["acme", "other", "acme"]) == {"acme": 5}
    assert queued_limits(parse_quotas(Quota(tenant="*", a_day=1)), ["acme"]) == {}


@given(
    st.floats(0.01, 1000),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 20)), min_size=1, max_size=50),
)
def test_at_most_the_rate_and_one_burst_are_admitted_in_any_period(
    rate: float, burst: int, steps: list[tuple[int, int]]
) -> None:
    quotas = parse_quotas(Quota(tenant="acme", rate=rate, burst=burst))
    usage: dict[str, QuotaUsage] = {}
    now, instants = 0, list[int]()
    for wait, count in steps:
        now += wait
        one = book(quotas, now=now, usage=usage)
        for _ in range(count):
            excess = one.admit(tenant="acme", user="", size=1, is_queued=True)
            if excess is None:
                instants.append(now)
            else:
                assert excess.until is not None
                assert excess.until > now
                later = book(quotas, now=excess.until, usage={**usage, **one.changed})
                assert count_admitted(later, 1) == 1, "no room, although some was expected"
        usage |= one.changed

    for place, begin in enumerate(instants):
        for count, end in enumerate(instants[place:], start=1):
            assert count <= burst + rate * (end - begin) / 1000 + 1e-6


def test_jobs_are_dispatched_while_their_tenant_and_their_owner_have_room() -> None:
    quotas = parse_quotas(Quota(tenant="acme", running=3, rate=9), Quota(tenant="acme", user="*", running=2))
    running = {("acme", "ann"): 1, ("acme", "gone"): 0, ("other", "ann"): 9}
    runs = RunBook(quotas, usage={}, running=running, now=_DAY)

    owners = ("ann", "ann", "bob", "cid")
    assert [runs.admit(tenant="acme", user=owner) for owner in owners] == [True, False, True, False]
    assert runs.admit(tenant="other", user="ann")
    assert runs.changed == {}
    assert "acme" in quotas.held_back()
    assert "other" not in quotas.held_back()


def test_an_idle_rate_allows_one_burst_and_then_single_jobs() -> None:
    quotas = parse_quotas(Quota(tenant="*", rate=2, burst=2, on_limit="wait"), Quota(tenant="b", rate=1))
    assert "a" in quotas.held_back()
    assert "" not in quotas.held_back()
    assert not Quotas().held_back()
    first = RunBook(quotas, usage={}, running={}, now=_DAY)
    assert [first.admit(tenant="a", user="") for _ in range(3)] == [True, True, False]

    usage = first.changed
    assert usage == {run_name("a"): QuotaUsage(1, 2, 0, _DAY + 1000)}
    for passed, goes in ((499, False), (500, True)):
        later = RunBook(quotas, usage=usage, running={}, now=_DAY + passed)
        assert later.admit(tenant="a", user="") is goes
    # It does not limit submissions; another quota does.
    assert count_admitted(book(quotas, now=_DAY), 5, tenant="a") == 5
    assert count_admitted(book(quotas, now=_DAY), 5, tenant="b") == 1


def test_run_time_is_recorded_beside_submissions() -> None:
    names = [run_name("acme"), run_name("acme", "ann"), run_name("acme", ""), usage_name("acme", "ann")]

    assert len(set(names)) == 4
    assert all(name.startswith(usage_prefix("acme")) for name in names)
    assert not run_name("acme2").startswith(usage_prefix("acme"))


def test_lanes_are_searched_deeply_only_for_user_quotas_and_within_a_limit() -> None:
    whole = Quota(tenant="*", running=5)
    user = Quota(tenant="acme", user="*", running=1)
    refusing = Quota(tenant="other", user="ann", rate=1.0)
    everybodys = Quota(tenant="*", user="*", running=1)

    def depths(*quotas: Quota, picks: list[tuple[str, int]]) -> list[int]:
        said = Quotas(version=1, quotas={usage_name(quota.tenant, quota.user): quota for quota in quotas})
        return looked_at(said, picks)

    assert depths(whole, refusing, picks=[("acme", 3), ("other", 1)]) == [3, 1]
    assert depths(whole, user, refusing, picks=[("acme", 3), ("other", 1)]) == [500, 1]
    assert depths(everybodys, picks=[("acme", 3), ("", 2)]) == [500, 2]
    many = [(f"t{number}", 1) for number in range(400)]
    assert depths(everybodys, picks=[*many, ("large", 100)]) == [*[24] * 400, 100]


def test_withdrawn_jobs_free_their_room() -> None:
    quotas = Quotas(
        version=1,
        quotas={
            usage_name("acme"): Quota(tenant="acme", a_day=1, rate=1.0, queued=1),
            usage_name("acme", "ann"): Quota(tenant="acme", user="ann", bytes=10),
        },
    )
    book = QuotaBook(quotas, usage={}, queued={}, now=5 * _DAY)
    first = CountedJob(tenant="acme", user="ann", size=10, is_queued=True)
    later = CountedJob(tenant="acme", user="ann", size=10, is_queued=False)

    for job in (first, later, first):
        assert book.admit(**job) is None
        assert book.admit(**job) is not None
        book.take_back(**job)

    assert {name: (each.jobs, each.bytes, each.used_until) for name, each in book.changed.items()} == {
        usage_name("acme"): (0, 0, 5.0 * _DAY),
        usage_name("acme", "ann"): (0, 0, 0.0),
    }


def test_a_job_beyond_the_daily_bytes_is_refused_until_midnight() -> None:
    one = book(parse_quotas(Quota(tenant="acme", bytes=250)), now=_DAY + 1)

    assert count_admitted(one, 5) == 2
    excess = one.admit(tenant="acme", user="", size=51, is_queued=True)
    assert excess is not None
    assert (excess.limit, excess.until) == ("bytes", 2 * _DAY)
    assert one.admit(tenant="acme", user="", size=50, is_queued=True) is None


def test_a_batch_is_admitted_completely_or_not_at_all_and_then_does_not_count() -> None:
    runs = RunBook(parse_quotas(Quota(tenant="acme", running=2)), usage={}, running={}, now=_DAY)

    assert not runs.admit_all([("acme", "ann"), ("acme", "bob"), ("acme", "cid")])
    assert runs.changed == {}
    assert runs.admit_all([("acme", "ann"), ("acme", "bob")])
    assert not runs.admit(tenant="acme", user="cid")


def test_submissions_leave_the_place_that_a_step_has_claimed() -> None:
    quotas = parse_quotas(Quota(tenant="acme", queued=3))
    full = book(quotas, now=1_000, usage={step_name("acme"): QuotaUsage()})
    assert count_admitted(full, 5) == 3

    assert postpone(full) == 1_200
    # Other steps pause for longer.
    assert postpone(full) == 6_000

    later = book(quotas, now=1_200, usage=full.changed, queued={"acme": 2})
    assert count_admitted(later, 1) == 0
    assert count_admitted(later, 1, is_step=True) == 1
    # The next place is for a submission again.
    after = book(quotas, now=1_300, usage=later.changed, queued={"acme": 3})
    assert postpone(after) == 6_300
    assert count_admitted(book(quotas, now=1_400, usage=after.changed, queued={"acme": 2}), 1) == 1


@pytest.mark.parametrize("limits", [{"a_day": 5}, {"bytes": 500}, {"rate": 0.001, "burst": 5}, {"queued": 5}])
def test_a_claim_counts_for_each_limit_until_it_expires(limits: dict[str, Any]) -> None:
    quotas = parse_quotas(Quota(tenant="acme", **limits))
    claim = {step_name("acme"): QuotaUsage(0, 1, 100, 2_000.0)}

    assert count_admitted(book(quotas, now=2_999, usage=claim), 9) == 4
    assert count_admitted(book(quotas, now=2_999, usage=claim), 9, is_step=True) == 5
    assert count_admitted(book(quotas, now=3_000, usage=claim), 9) == 5


def test_a_waiting_step_asks_again_when_there_is_room_and_at_least_once_a_minute() -> None:
    second = book(parse_quotas(Quota(tenant="acme", rate=0.1)), now=1_000)
    assert count_admitted(second, 1, is_step=True) == 1
    assert postpone(second) == 11_001

    day = book(parse_quotas(Quota(tenant="acme", a_day=0)), now=1_000)
    assert postpone(day) == 61_000
    assert postpone(book(parse_quotas(Quota(tenant="acme", a_day=0)), now=_DAY - 7_000)) == _DAY


@given(st.integers(1, 4), st.lists(st.integers(50, 2_000), min_size=40, max_size=40), st.booleans())
def test_waiting_steps_and_steady_submitters_share_the_free_places(
    most: int, pauses: list[int], are_many: bool
) -> None:
    """A place becomes free after each pause, while submitters try every 25 ms, and one step or two always wait."""
    quotas = parse_quotas(Quota(tenant="acme", queued=most))
    usage: dict[str, QuotaUsage] = {step_name("acme"): QuotaUsage()}
    queued, now, free_at = 0, 0, 0
    asks = [[0, 0] for _ in range(1 + are_many)]
    made: Counter[bool] = Counter()
    left = list(pauses)
    while left:
        now += 25
        if now >= free_at:
            queued, free_at = max(queued - 1, 0), now + left.pop()
        one, before = book(quotas, now=now, usage=usage, queued={"acme": queued}), made.total()
        for ask in asks:
            if now < ask[0]:
                continue
            if (excess := one.admit(tenant="acme", user="", size=100, is_queued=True, is_step=True)) is None:
                made[True] += 1
                ask[:] = [now, 0]
            else:
                ask[:] = [one.postpone(excess, size=100, pause=100 << ask[1]), min(ask[1] + 1, 10)]
        made[False] += count_admitted(one, 3)
        queued += made.total() - before
        assert queued <= most
        usage |= one.changed

    assert made[True] >= len(pauses) // 5
    assert made[False] >= len(pauses) // 5


def test_jobs_change_the_usage_and_the_claims_of_their_quotas() -> None:
    quotas = parse_quotas(Quota(tenant="acme", a_day=1), Quota(tenant="*", user="*", a_day=1))

    assert usage_names(quotas, [("acme", "ann"), ("acme", ""), ("", "bob")]) == sorted(
        [usage_name("acme"), step_name("acme"), usage_name("acme", "ann"), step_name("acme", "ann")]
    )
