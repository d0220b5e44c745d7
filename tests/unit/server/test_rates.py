"""How many requests a caller may send."""

from pathlib import Path

import pytest

from taskmq.errors import InvalidSetting
from taskmq.server import ServerSettings
from taskmq.server.rates import RateLimits
from tests.unit.server.kit import open_site


def test_a_burst_is_taken_and_then_as_many_as_the_rate_allows() -> None:
    limits = RateLimits(rate=2, burst=3)

    assert [limits.take("a", now=100.0) for _ in range(5)] == [0, 0, 0, 1, 1]
    assert [limits.take("a", now=100.5) for _ in range(2)] == [0, 1]
    assert limits.take("b", now=100.5) == 0
    assert [limits.take("a", now=200.0) for _ in range(4)] == [0, 0, 0, 1]


def test_a_slow_rate_says_how_long_to_wait() -> None:
    limits = RateLimits(rate=0.1, burst=1)

    assert [limits.take("a", now=0.0) for _ in range(2)] == [0, 10]
    assert limits.wait("a", now=4.0) == 6


def test_without_a_rate_everything_is_taken() -> None:
    limits = RateLimits(rate=0, burst=0)

    assert {limits.take("a", now=0.0) for _ in range(100)} == {0}


def test_many_keys_do_not_stay_for_ever_and_those_in_use_do() -> None:
    limits = RateLimits(rate=1, burst=1)
    for number in range(9_999):
        limits.take(f"old-{number}", now=0.0)
    limits.take("used", now=100.0)

    limits.take("another", now=100.0)

    assert len(limits._buckets) == 2
    assert limits.take("used", now=100.0) == 1
    for number in range(10_000):
        limits.take(f"new-{number}", now=100.0)
    assert len(limits._buckets) <= 10_000


def test_a_caller_who_sends_too_many_has_to_wait_and_others_have_not(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        taken, refused = (site("GET", "/jobs/count") for _ in range(2))
        other = site("GET", "/jobs/count", by="picky")

    assert (taken.status_code, refused.status_code, other.status_code) == (200, 429, 200)
    assert refused.json()["code"] == "too_many_requests"
    assert int(refused.headers["retry-after"]) > 1


def test_an_address_with_many_bad_credentials_has_to_wait(tmp_path: Path) -> None:
    with open_site(tmp_path, ServerSettings(rate=0.001)) as site:
        answers = [site("GET", "/jobs", by="stranger").status_code for _ in range(3)]
        public = site("GET", "/health/live", by=None).status_code

    assert answers == [401, 429, 429]
    assert public == 200


def test_a_rate_that_cannot_be_is_refused() -> None:
    for rate in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidSetting, match="rate"):
            ServerSettings(rate=rate)
