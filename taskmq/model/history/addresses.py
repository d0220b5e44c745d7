"""Public internet addresses, as opposed to those of this machine and of private networks. Pure.

The networks are those of IANA's special-purpose registries. `ipaddress.is_global` is not used: its list depends on
the Python release.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

_PRIVATE_V4: Final = [
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by customers of a provider; 100.100.100.200 is Alibaba's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host of a virtual machine in Azure: public by its number alone
        "169.254.0.0/16",  # link-local: metadata services of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, withdrawn
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
"""Addresses routed in the internet, without loopback, unique local, site-local, mapped and translated ones."""
_PRIVATE_V6: Final = [
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, and Teredo, which brings packets to an IPv4 address behind a NAT
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")


def is_public(address: str) -> bool:
    """Return whether an IP address is a public one: not this machine's, not a private network's, and routable.

    An IPv6 address that stands for an IPv4 one (mapped, NAT64, 6to4) is as public as that one. Other translated or
    tunnelled addresses (compatible, local NAT64, Teredo) are never public: their packets may end anywhere.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = _embedded_ipv4(found)
        if inner is None:
            return found in _GLOBAL_V6 and not _is_in(found, _PRIVATE_V6)
        found = inner
    return not _is_in(found, _PRIVATE_V4)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 one stands for."""
    if address in _MAPPED or address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _6TO4:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None


def _is_in(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(address in network for network in networks)
