"""Trusted proxies, and the addresses that they forward."""

import asyncio
import logging
from typing import Any

import pytest

from taskmq.errors import InvalidSetting
from taskmq.server.edge import Edge
from taskmq.server.process.proxies import behind_proxies, check_proxies


def _seen_client(trusted: str, peer: str, *headers: tuple[bytes, bytes]) -> tuple[str, str]:
    """Return the client's address and the scheme that handlers see."""
    seen: list[tuple[str, str]] = []

    async def handler(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))

    async def nothing(*_: Any) -> Any: ...

    edge = Edge(handler, on_stop=lambda: None, on_response=lambda *_: None)
    scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": list(headers),
        "client": (peer, 50_000), "scheme": "http", "root_path": "",
    }  # fmt: skip
    asyncio.run(_call(behind_proxies(edge, trusted), scope, nothing))
    return seen[0]


async def _call(app: Any, scope: dict[str, Any], nothing: Any) -> None:
    await app(scope, nothing, nothing)


_FROM = (b"x-forwarded-for", b"203.0.113.9")
_SECURE = (b"x-forwarded-proto", b"https")


def test_forwarded_addresses_are_ignored_unless_the_operator_trusts_the_proxy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert _seen_client("", "127.0.0.1", _FROM, _SECURE) == ("127.0.0.1", "http")
    assert _seen_client("10.0.0.0/8", "192.0.2.1", _FROM, _SECURE) == ("192.0.2.1", "http")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "192.0.2.1" in caplog.records[1].getMessage()
    assert "$FORWARDED_ALLOW_IPS" in caplog.records[1].getMessage()


def test_a_trusted_proxy_names_the_client_and_its_scheme(caplog: pytest.LogCaptureFixture) -> None:
    assert _seen_client("10.0.0.0/8", "10.1.2.3", _FROM, _SECURE) == ("203.0.113.9", "https")
    assert _seen_client("127.0.0.1,::1", "::1", _FROM) == ("203.0.113.9", "http")
    assert _seen_client("*", "192.0.2.1", _FROM) == ("203.0.113.9", "http")
    # The last address not named by a trusted proxy: addresses sent by the client itself are ignored.
    chain = (b"x-forwarded-for", b"198.51.100.1, 203.0.113.9, 10.9.9.9")
    assert _seen_client("10.0.0.0/8", "10.1.2.3", chain) == ("203.0.113.9", "http")
    assert caplog.records == []


@pytest.mark.parametrize(
    "text",
    [
        b"<script>",
        b"\x1b]0;x\x07",
        b"a" * 3_000,
        b"unknown",
        b"_hidden",
        b"1.2.3.4.5",
        b"010.1.1.1",
        b"127.1",
        b"\xff",
    ],
)
def test_an_invalid_address_is_not_stored_as_one(text: bytes) -> None:
    assert _seen_client("10.0.0.1", "10.0.0.1", (b"x-forwarded-for", text)) == ("", "http")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (b"203.0.113.9:4711", "203.0.113.9"),
        (b"[2001:DB8::1]:4711", "2001:db8::1"),
        (b"2001:DB8:0::1", "2001:db8::1"),
        (b"fe80::1%<script>", "fe80::1"),
    ],
)
def test_an_address_has_one_form(text: bytes, address: str) -> None:
    assert _seen_client("10.0.0.1", "10.0.0.1", (b"x-forwarded-for", text))[0] == address


def test_an_untrusted_proxy_is_logged_once_and_their_number_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(scope: Any, receive: Any, send: Any) -> None: ...

    async def main() -> None:
        app = behind_proxies(handler, "")
        for turn in range(300):
            peer = f"192.0.{turn % 150 // 100}.{turn % 100}"
            await app({"type": "http", "headers": [_FROM], "client": (peer, 1)}, handler, handler)
        await app({"type": "lifespan"}, handler, handler)

    asyncio.run(main())

    assert len(caplog.records) == 100
    assert len({record.getMessage() for record in caplog.records}) == 100


def test_proxies_are_addresses_and_networks() -> None:
    assert check_proxies("") == ""
    assert check_proxies(" 10.0.0.0/8, ::1 ,") == "10.0.0.0/8,::1"
    assert check_proxies("*") == "*"
    for wrong in ("ingress", "10.0.0.1/8", "10.0.0.0/8,*", "localhost"):
        with pytest.raises(InvalidSetting, match="FORWARDED_ALLOW_IPS"):
            check_proxies(wrong)
