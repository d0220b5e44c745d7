from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.identity import (
    FORGET_AFTER_MS,
    ThrottleKey,
    confirmation_key,
    failures_at,
    network_of,
    throttle_keys,
    touches,
    wait_after,
)


def test_waits_begin_after_the_free_failures_and_double_up_to_the_longest() -> None:
    key = ThrottleKey("k", 3, 10_000)

    assert [wait_after(key, failures) for failures in range(9)] == [0, 0, 0, 1000, 2000, 4000, 8000, 10_000, 10_000]
    assert wait_after(key, 10**9) == 10_000


def test_the_fifth_wrong_password_of_a_credential_waits_for_as_long_as_they_count() -> None:
    key = confirmation_key("session-1")

    assert [wait_after(key, failures) for failures in range(6)] == [0] * 4 + [FORGET_AFTER_MS] * 2
    assert key != confirmation_key("session-2")
    assert "session" not in key.key


@given(st.integers(0, 100), st.integers(0, 100))
def test_more_failures_never_mean_a_shorter_wait(fewer: int, more: int) -> None:
    for key in throttle_keys("ann", "192.0.2.1"):
        assert wait_after(key, fewer) <= wait_after(key, fewer + more) <= FORGET_AFTER_MS


def test_failures_count_for_a_while_after_the_last() -> None:
    assert failures_at(7, at=1000, now=1000 + FORGET_AFTER_MS - 1) == 7
    assert failures_at(7, at=1000, now=1000 + FORGET_AFTER_MS) == 0


def test_what_failures_count_for_does_not_tell_what_was_typed() -> None:
    keys = throttle_keys("My Password", "192.0.2.1")

    assert len({key.key for key in keys}) == len(keys) == 3
    assert not any("assword" in key.key or "192" in key.key for key in keys)
    assert throttle_keys("my password", "192.0.2.1") == keys
    assert [key.is_shared for key in keys] == [False, False, True]
    assert throttle_keys("\ud800", "\0")


def test_one_place_waits_longer_than_one_name() -> None:
    """Somebody who guesses does not lock out the user, who comes from another address."""
    pair, name, address = throttle_keys("ann", "192.0.2.1")

    assert pair.free < name.free < address.free
    assert name.longest_ms == address.longest_ms < pair.longest_ms


def test_a_success_lifts_what_others_have_failed_and_nothing_of_the_pair() -> None:
    pair, name, address = throttle_keys("ann", "192.0.2.1")
    (elsewhere, *_), (other, *_) = (
        {key.known for key in keys if key.known}
        for keys in (throttle_keys("ann", "192.0.2.2"), throttle_keys("bob", "192.0.2.1"))
    )

    assert (pair.known, name.known) == ("", address.known)
    assert len({name.known, elsewhere, other, pair.key, name.key, address.key}) == 6


def test_a_use_is_written_down_once_a_minute_or_sooner_for_what_ends_sooner() -> None:
    assert not touches(0, 59_999)
    assert touches(0, 60_000)
    assert touches(0, 10_000, idle_ms=20_000)
    assert not touches(0, 9_999, idle_ms=20_000)
    assert not touches(0, 59_999, idle_ms=3_600_000)


def test_one_client_of_ipv6_counts_as_one_whichever_of_its_addresses_it_takes() -> None:
    networks = {
        network_of(address) for address in ("2001:db8:1:2::1", "2001:DB8:1:2:ffff::9", "2001:db8:1:2::1%eth0")
    }

    assert networks == {"2001:db8:1:2::/64"}
    assert network_of("2001:db8:1:3::1") == "2001:db8:1:3::/64"
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert [network_of(text) for text in ("", "unix:", "testclient")] == ["", "unix:", "testclient"]
    assert throttle_keys("ann", "2001:db8:1:2::1") == throttle_keys("ann", "2001:db8:1:2::2")
