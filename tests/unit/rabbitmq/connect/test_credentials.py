"""The credentials of a broker object, on a real loop, with real files and a real token server."""

import asyncio
import copy
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from taskmq.errors import AccessDenied, BrokerUnavailable
from taskmq_rabbitmq.connect.credentials import CertificateCredentials, CredentialSource, PasswordCredentials
from taskmq_rabbitmq.model.url import parse_url
from tests.servers.tokens import TokenServer, signed_token
from tests.servers.waiting import until

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def _login(url: str, now: Callable[[], float] = time.time) -> AsyncIterator[CredentialSource]:
    login = CredentialSource(parse_url(url), loop=asyncio.get_running_loop(), now=now)
    try:
        yield login
    finally:
        login.close()


def _start(mechanisms: str, version: str) -> SimpleNamespace:
    return SimpleNamespace(mechanisms=mechanisms, server_properties={"version": version})


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def _replace(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def test_user_and_password_are_available_at_once() -> None:
    async with _login("amqp://user:S3CRET@h") as login:
        assert await login.secret() == "S3CRET"
        assert "S3CRET" not in repr(login)


async def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")

    async with _login(f"amqp://h?token_file={path}") as login:
        assert await login.secret() == "abc"


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"", "empty"), (b"\xff\xfeS3CRET", "text")])
async def test_a_file_without_a_token_is_refused_by_name(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)

    async with _login(f"amqp://h?token_file={path}") as login:
        with pytest.raises(AccessDenied, match=reason) as caught:
            await login.secret()
        assert str(path) in str(caught.value)
        assert "S3CRET" not in repr(caught.value) + repr(caught.value.__cause__)


async def test_a_newer_token_in_the_file_is_used_before_the_old_one_expires(tmp_path: Path) -> None:
    path = tmp_path / "token"
    old, new = signed_token(seconds=2), signed_token(seconds=3600)
    path.write_text(old)

    renewed = asyncio.Event()
    handed: list[str] = []

    def take(secret: str) -> None:
        handed.append(secret)
        renewed.set()

    async with _login(f"amqp://h?token_file={path}") as login, asyncio.timeout(10):
        login.on_renewed(take)
        assert await login.secret() == old
        _replace(path, new)
        await renewed.wait()
        assert await login.secret() == new
    assert handed == [new]


async def test_a_stale_token_is_warned_about_once_and_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    old, new = signed_token(seconds=-1), signed_token(seconds=3600)
    path.write_text(old)

    with caplog.at_level(logging.WARNING):
        async with _login(f"amqp://h?token_file={path}") as login, asyncio.timeout(20):
            renewed = asyncio.Event()
            login.on_renewed(lambda _: renewed.set())
            assert await login.secret() == old
            assert await login.secret() == old
            assert await login.secret() == old
            _replace(path, new)
            await renewed.wait()

    assert [record.getMessage().count("failed (it has expired)") for record in caplog.records] == [1]
    assert old not in caplog.text


async def test_refused_credentials_are_fetched_again_before_the_next_attempt(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("old")

    async with _login(f"amqp://u@h?token_file={path}") as login:
        assert await login.secret() == "old"
        path.write_text("new")
        assert await login.secret() == "old"
        login.on_refusal("old")
        assert await login.secret() == "new"
        login.on_refusal("old")
        path.write_text("newest")
        assert await login.secret() == "new"


async def test_a_token_server_is_asked_once_for_all_waiters() -> None:
    with TokenServer(client_id="id:", secret="p%&ss") as server:
        url = f"amqp://id%3A:p%25%26ss@h?oauth2_token_url={quote(server.url, safe='')}&oauth2_scope=a%20b"
        async with _login(url) as login:
            assert len({*await asyncio.gather(*(login.secret() for _ in range(5)))}) == 1

    assert server.forms == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (400, b'{"error": "invalid_scope", "error_description": "S3CRET"}', AccessDenied, "400 invalid_scope"),
        (403, b"S3CRET", AccessDenied, "answered 403; check the client id"),
        (302, b"", BrokerUnavailable, "redirects are not followed"),
        (503, b'["S3CRET"]', BrokerUnavailable, "answered 503"),
        (200, b"S3CRET", BrokerUnavailable, "not JSON"),
        (200, b"{}", BrokerUnavailable, "no access_token"),
    ],
)
def test_a_token_server_without_a_token_is_quoted_only_as_far_as_it_is_safe(
    status: int, body: bytes, kind: type[BrokerUnavailable], reason: str
) -> None:
    async def main() -> None:
        async with _login(f"amqp://id:Pa55@h?oauth2_token_url={server.url}") as login:
            with pytest.raises(kind, match=reason) as caught:
                await login.secret()
            assert type(caught.value) is kind
            assert "S3CRET" not in str(caught.value)
            assert "Pa55" not in str(caught.value)

    with TokenServer(client_id="id", secret="Pa55") as server:
        server.answer = (status, body)
        asyncio.run(main())


async def test_a_wrong_client_secret_is_a_refusal() -> None:
    with TokenServer(client_id="id", secret="right") as server:
        async with _login(f"amqp://id:Wr0ng@h?oauth2_token_url={server.url}") as login:
            with pytest.raises(AccessDenied, match="401 invalid_client") as caught:
                await login.secret()
            assert "Wr0ng" not in str(caught.value)


def test_an_unreachable_token_server_is_named() -> None:
    with TokenServer(client_id="id", secret="s") as server:
        pass

    async def main() -> None:
        async with _login(f"amqp://id:s@h?oauth2_token_url={server.url}") as login:
            with pytest.raises(BrokerUnavailable, match="refused") as caught:
                await login.secret()
            assert server.url in str(caught.value)

    asyncio.run(main())


def test_a_failed_renewal_is_warned_about_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with _login(f"amqp://id:s@h?oauth2_token_url={server.url}") as login, asyncio.timeout(20):
            renewed = asyncio.Event()
            login.on_renewed(lambda _: renewed.set())
            first = await login.secret()
            server.answer = (503, b"")
            await until(lambda: len(server.forms) >= 4)
            server.answer = (200, None)
            await renewed.wait()
            assert first != await login.secret()

    caplog.set_level(logging.WARNING)
    with TokenServer(client_id="id", secret="s", make=lambda: signed_token(seconds=2)) as server:
        asyncio.run(main())

    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "failed (it expires in" in warnings[0]
    assert "answered 503" in warnings[0]
    assert not any(token in caplog.text for token in server.handed_out)


def test_nothing_is_fetched_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc")

    async def main() -> list[object]:
        found: list[object] = []
        async with _login(f"amqp://h?token_file={path}") as login:
            login.current(found.append)
        await asyncio.sleep(0.05)
        return found

    assert asyncio.run(main()) == []


def test_a_token_too_large_for_the_login_is_reported_as_such() -> None:
    credentials = PasswordCredentials("", "x" * 4000, "")
    newer = PasswordCredentials("", "x" * 4000, "")

    assert credentials.response_for(_start("AMQPLAIN PLAIN", "4.0.5")) == (None, None)
    assert newer.response_for(_start("AMQPLAIN PLAIN", "4.1.0")) == ("PLAIN", b"\0\0" + b"x" * 4000)

    assert credentials.problem is not None
    assert "the token has 4,000 bytes" in credentials.problem
    assert newer.problem is None


def test_a_broker_without_a_login_method_is_quoted() -> None:
    external, plain = CertificateCredentials(), PasswordCredentials("u", "p", "")

    assert external.response_for(_start("PLAIN AMQPLAIN", "4.3.6")) == (None, None)
    assert plain.response_for(_start("EXTERNAL", "4.3.6")) == (None, None)
    assert CertificateCredentials().response_for(_start("PLAIN EXTERNAL", "3.10.8")) == ("EXTERNAL", b"")

    assert external.problem is not None
    assert "offers PLAIN, AMQPLAIN" in external.problem
    assert "rabbitmq_auth_mechanism_ssl" in external.problem
    assert plain.problem is not None
    assert "not PLAIN" in plain.problem


def test_credentials_show_no_secret_and_are_not_copied() -> None:
    credentials = PasswordCredentials("u", "S3CRET", "remedy")

    assert "S3CRET" not in repr(credentials)
    assert copy.deepcopy(credentials) is credentials
