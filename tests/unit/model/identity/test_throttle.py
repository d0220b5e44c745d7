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


def test_the_fifth_wrong_password_blocks_the_credential_while_failures_count() -> None:
    key = confirmation_key("session-1")

    assert [wait_after(key, failures) for failures in range(6)] == [0] * 4 + [FORGET_AFTER_MS] * 2
    assert key != confirmation_key("session-2")
    assert "session" not in key.key


@given(st.integers(0, 100), st.integers(0, 100))
def test_more_failures_never_shorten_the_wait(fewer: int, more: int) -> None:
    for key in throttle_keys("ann", "192.0.2.1"):
        assert wait_after(key, fewer) <= wait_after(key, fewer + more) <= FORGET_AFTER_MS


def test_failures_count_for_a_while_after_the_last() -> None:
    assert failures_at(7, at=1000, now=1000 + FORGET_AFTER_MS - 1) == 7
    assert failures_at(7, at=1000, now=1000 + FORGET_AFTER_MS) == 0


def test_throttle_keys_do_not_reveal_the_typed_text() -> None:
    keys = throttle_keys("My Password", "192.0.2.1")

    assert len({key.key for key in keys}) == len(keys) == 3
    assert not any("assword" in key.key or "192" in key.key for key in keys)
    assert throttle_keys("my password", "192.0.2.1") == keys
    assert [key.is_shared for key in keys] == [False, False, True]
    assert throttle_keys("\ud800", "\0")


def test_an_address_waits_longer_than_a_name() -> None:
    """An attacker does not lock out the user, who comes from another address."""
    pair, name, address = throttle_keys("ann", "192.0.2.1")

    assert pair.free < name.free < address.free
    assert name.longest_ms == address.longest_ms < pair.longest_ms


def test_a_success_clears_the_name_and_address_and_not_the_pair() -> None:
    pair, name, address = throttle_keys("ann", "192.0.2.1")
    (elsewhere, *_), (other, *_) = (
        {key.known for key in keys if key.known}
        for keys in (throttle_keys("ann", "192.0.2.2"), throttle_keys("bob", "192.0.2.1"))
    )

    assert (pair.known, name.known) == ("", address.known)
    assert len({name.known, elsewhere, other, pair.key, name.key, address.key}) == 6


def test_a_use_is_recorded_once_a_minute_or_sooner_near_the_expiry() -> None:
    assert not touches(0, 59_999)
    assert touches(0, 60_000)
    assert touches(0, 10_000, idle_ms=20_000)
    assert not touches(0, 9_999, idle_ms=20_000)
    assert not touches(0, 59_999, idle_ms=3_600_000)


def test_an_ipv6_client_counts_as_one_across_its_addresses() -> None:
    networks = {
        network_of(address) for address in ("2001:db8:1:2::1", "2001:DB8:1:2:ffff::9", "2001:db8:1:2::1%eth0")
    }

    assert networks == {"2001:db8:1:2::/64"}
    assert network_of("2001:db8:1:3::1") == "2001:db8:1:3::/64"
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert [network_of(text) for text in ("", "unix:", "testclient")] == ["", "unix:", "testclient"]
    assert throttle_keys("ann", "2001:db8:1:2::1") == throttle_keys("ann", "2001:db8:1:2::2")
