"""What connections log in with, and how it is renewed.

    no token -> fetching -> held -> (80 % of its life) -> looking -> held ...

User and password, and a client certificate (`auth=external`), do not change. A token is fetched before the first
connection needs it; all connections of one broker object share it. Every newer one is handed to the open
connections, which go on with it (`connection.update-secret`). What cannot be renewed is warned about and looked
for again; nothing is closed on this side, because the broker is the judge of a token.

No secret is part of a message, a log line or a repr.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from taskmq.contracts.loggers import contained
from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.amqp.pika_types import ExternalCredentials, PlainCredentials
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.model.tokens import Token, next_look
from taskmq_rabbitmq.model.url import Endpoint, TokenFile

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Start

__all__ = ["Answer", "CertificateCredentials", "CredentialSource", "LoginCredentials", "PasswordCredentials"]

_log = contained(__name__)
# RabbitMQ's limit for a frame before the login, by the first version that has it; and what else is in that frame.
_FRAME: Final = 4096
_LARGER_FRAME: Final = ((4, 1), 8192)
_BESIDE: Final = 480
_JITTER: Final = 0.1


class LoginCredentials:
    """What one attempt to connect shows; pika's credentials, and what to say when they are refused.

    Attributes:
        secret: the password or token.
        remedy: what to do when the broker refuses them.
        problem: why they were not even shown, once that is known.
    """

    def __init__(self, secret: str, remedy: str) -> None:
        self.secret = secret
        self.remedy = remedy
        self.problem: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: object) -> "LoginCredentials":
        # pika copies what it is given, and the problem would reach the copy alone.
        return self

    def _offered(self, start: "Start", mechanism: str) -> bool:
        offered = _text(start.mechanisms).split()
        if mechanism not in offered:
            plugin = "; it needs the plugin rabbitmq_auth_mechanism_ssl" if mechanism == "EXTERNAL" else ""
            self.problem = f"the broker offers {', '.join(offered)} for the login, and not {mechanism}{plugin}"
        return self.problem is None


class PasswordCredentials(LoginCredentials, PlainCredentials):
    """User and password, or a token as the password."""

    def __init__(self, user: str, secret: str, remedy: str) -> None:
        PlainCredentials.__init__(self, user, secret)
        LoginCredentials.__init__(self, secret, remedy)

    def response_for(self, start: "Start") -> tuple[str | None, bytes | None]:
        """What pika asks for."""
        answer = b"\0" + self.username.encode() + b"\0" + self.secret.encode()
        limit = _frame_limit(start)
        if self._offered(start, "PLAIN") and len(answer) + _BESIDE > limit:
            self.problem = (
                f"the token has {len(self.secret):,} bytes, and a login at this broker {limit:,} at most, with all "
                "that belongs to it: ask for a token with fewer scopes or claims, or upgrade to RabbitMQ 4.1 (8,192)"
            )
        return (None, None) if self.problem is not None else ("PLAIN", answer)


class CertificateCredentials(LoginCredentials, ExternalCredentials):
    """The client certificate, which TLS has shown."""

    def __init__(self) -> None:
        ExternalCredentials.__init__(self)
        LoginCredentials.__init__(
            self, "", "create a user of the name that the certificate has (`ssl_cert_login_from`)"
        )

    def response_for(self, start: "Start") -> tuple[str | None, bytes | None]:
        """What pika asks for."""
        return ("EXTERNAL", b"") if self._offered(start, "EXTERNAL") else (None, None)


Answer = PasswordCredentials | CertificateCredentials | BrokerUnavailable


class CredentialSource:
    """The papers of one broker object, for its event loop.

    Args:
        now: seconds since the epoch.
    """

    def __init__(
        self, endpoint: Endpoint, *, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.time
    ) -> None:
        self._endpoint = endpoint
        self._source = endpoint.token
        self._loop = loop
        self._now = now
        self._token: Token | None = None
        self._is_fetching = False
        self._is_stale = False
        self._is_failing = False
        self._backoff = reconnect_backoff()
        self._asked: list[Callable[[Token | BrokerUnavailable], None]] = []
        self._renewed: list[Callable[[str], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Login {self._endpoint.address}>"

    def on_renewed(self, call: Callable[[str], None]) -> None:
        """Call `call(secret)` for each newer token from now on."""
        self._renewed.append(call)

    def newer(self, credentials: LoginCredentials | None) -> str | None:
        """The token, where `papers` show an older one."""
        if self._token is None or credentials is None or credentials.secret == self._token.secret:
            return None
        return self._token.secret

    def current(self, then: Callable[[Answer], None]) -> None:
        """Call `then` with papers, or with why there are none; soon, or once a token has been fetched."""

        def answer(token: Token | BrokerUnavailable) -> None:
            then(token if isinstance(token, BrokerUnavailable) else self._credentials(token))

        if self._source is None:
            then(self._fixed())
        elif self._token is not None and not self._is_stale and not self._has_expired(self._token):
            then(self._credentials(self._token))
        else:
            self._asked.append(answer)
            self._fetch()

    async def secret(self) -> str:
        """The token, for requests to the broker that do not go over AMQP.

        Raises:
            BrokerUnavailable: there is none.
        """
        found: asyncio.Future[str] = self._loop.create_future()

        def take(answer: Answer) -> None:
            if found.done():
                return
            if isinstance(answer, BrokerUnavailable):
                found.set_exception(answer)
            else:
                found.set_result(answer.secret)

        self.current(take)
        return await found

    def refused(self, credentials: LoginCredentials) -> None:
        """The broker does not accept `papers`: fetch before the next attempt, if they can be fetched."""
        if self.newer(credentials) is None:
            self._is_stale = True

    def close(self) -> None:
        """Renew the token no more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._asked.clear()
        self._renewed.clear()

    def _fixed(self) -> PasswordCredentials | CertificateCredentials:
        if self._endpoint.auth == "external":
            return CertificateCredentials()
        return PasswordCredentials(
            self._endpoint.user,
            self._endpoint.password,
            "check the user, the password and the user's access to the virtual host",
        )

    def _credentials(self, token: Token) -> PasswordCredentials:
        ago = None if token.expires is None else self._now() - token.expires
        remedy = (
            f"the token of {self._place} expired {ago:,.0f} s ago and there is no newer one"
            if ago is not None and ago > 0
            else "check the token's audience, issuer and scopes against the node's settings"
        )
        return PasswordCredentials(self._endpoint.user, token.secret, remedy)

    @property
    def _place(self) -> str:
        return self._source.path if isinstance(self._source, TokenFile) else "the token server"

    def _fetch(self) -> None:
        if self._is_fetching or self._is_closed:
            return
        self._is_fetching = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A thread of its own: those of the loop's executor may all be busy with tasks, and are waited for at exit.
        threading.Thread(target=self._fetch_in_thread, name="taskmq token", daemon=True).start()

    def _fetch_in_thread(self) -> None:
        # Only who has tokens loads what speaks HTTP.
        from taskmq_rabbitmq.connect.token_sources import fetch

        try:
            found: Token | BrokerUnavailable = fetch(self._endpoint, now=self._now)
        except BrokerUnavailable as error:
            found = error
        # Where the loop has been closed no caller waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fetched, found)

    def _fetched(self, found: Token | BrokerUnavailable) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        if isinstance(found, BrokerUnavailable):
            self._failed(found)
        else:
            self._hold(found)
        asked, self._asked = self._asked, []
        for answer in asked:
            answer(found)

    def _failed(self, error: BrokerUnavailable) -> None:
        if self._token is None:
            # The caller gets the error, and asks again.
            return
        if not self._is_failing:
            self._is_failing = True
            _log.warning("%s: the token was not renewed%s, and is tried again: %s", self, self._left(), error)
        self._schedule(self._backoff.next())

    def _hold(self, token: Token) -> None:
        is_new = self._token is None or token.secret != self._token.secret
        had_one = self._token is not None
        self._token = token
        self._is_stale = False
        self._backoff.reset()
        if is_new and had_one:
            _log.debug("%s has a newer token", self)
            for call in self._renewed:
                call(token.secret)
        if is_new:
            self._is_failing = False
        elif not self._is_failing and self._has_expired(token):
            self._is_failing = True
            _log.warning("%s: the token of %s was not renewed%s", self, self._place, self._left())
        delay = next_look(token, now=self._now(), is_new=is_new)
        if delay is not None:
            self._schedule(delay * random.uniform(1 - _JITTER, 1))

    def _has_expired(self, token: Token) -> bool:
        return token.expires is not None and token.expires <= self._now()

    def _schedule(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self._fetch)

    def _left(self) -> str:
        if self._token is None or self._token.expires is None:
            return ""
        left = self._token.expires - self._now()
        return f" and expires in {left:,.0f} s" if left > 0 else " and has expired"


def _frame_limit(start: "Start") -> int:
    version = _text((start.server_properties or {}).get("version"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    first, larger = _LARGER_FRAME
    return larger if numbers >= first else _FRAME


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
