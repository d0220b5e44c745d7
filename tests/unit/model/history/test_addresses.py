"""Public addresses, and those that a webhook must not reach."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.history.addresses import is_public

_V4 = st.integers(0, 2**32 - 1).map(IPv4Address)
_NEVER = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
    "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32",
    "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "::1", "::", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1",
        "64:ff9b:1::a9fe:a9fe", "2002:a00:1::", "2002:a9fe:a9fe::1", "fe80::1%eth0", "fec0::1", "5f00::1", "3fff::1",
        "192.0.0.192", "168.63.129.16", "::ffff:168.63.129.16", "100.100.100.200", "fd00:ec2::254",
        "2001:0:7f00:1::", "255.255.255.255", "host", "",
    ],
)  # fmt: skip
def test_an_unusable_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("network", _NEVER)
def test_no_address_of_a_special_network_is_public(network: str) -> None:
    found = ip_network(network)
    last = int(found.broadcast_address)

    for number in (int(found.network_address), (int(found.network_address) + last) // 2, last):
        assert not is_public(str(type(found.network_address)(number)))


@given(_V4, st.integers(0, 2**80 - 1))
def test_an_embedded_address_is_as_public_as_the_address_itself(inner: IPv4Address, rest: int) -> None:
    expected = is_public(str(inner))

    for prefix in ("::ffff:0:0", "64:ff9b::"):
        assert is_public(str(IPv6Address(int(IPv6Address(prefix)) + int(inner)))) is expected
    assert is_public(str(IPv6Address((0x2002 << 112) + (int(inner) << 80) + rest))) is expected


@given(_V4, st.integers(0, 2**32 - 1))
def test_tunnels_and_translations_to_any_address_are_not_public(inner: IPv4Address, other: int) -> None:
    for prefix, shift in (("::", 0), ("::ffff:0:0:0", 0), ("64:ff9b:1::", 0), ("2001::", 64), ("2001::", 0)):
        assert not is_public(str(IPv6Address(int(IPv6Address(prefix)) + (int(inner) << shift))))
    assert not is_public(str(IPv6Address((0x2001 << 112) + (int(inner) << 64) + other)))


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_addresses_outside_the_allocated_space_are_not_public(address: IPv6Address) -> None:
    stands_for = any(address in IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))

    assert not is_public(str(address)) or stands_for or address in IPv6Network("2000::/3")
