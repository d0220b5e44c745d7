"""Options of a supervisor as people write them."""

import pytest

from taskmq.durable.health import Address, parse_address
from taskmq.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("9464", Address(port=9464), "127.0.0.1:9464"),
        ("0.0.0.0:80", Address(host="0.0.0.0", port=80), "0.0.0.0:80"),
        ("[::1]:80", Address(host="::1", port=80), "[::1]:80"),
        ("./health", Address(path="./health"), "./health"),
        ("/run/taskmq/health.sock", Address(path="/run/taskmq/health.sock"), "/run/taskmq/health.sock"),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host_or_a_path(text: str, address: Address, shown: str) -> None:
    assert parse_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "65536", "-1", "host:http"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="PORT, HOST:PORT, or the path"):
        parse_address(text)
