"""The token of an endpoint, and how it is renewed. Without pika, so that others than this adapter may use it.

    no token -> fetching -> held -> (80 % of its life) -> looking -> held ...

A token is fetched before the first connection needs it; all connections of one broker object share it. Every newer
one is handed to the open connections, which go on with it (`connection.update-secret`). What cannot be renewed is
warned about and looked for again; nothing is closed on this side, because the broker is the judge of a token.

No secret is part of a message, a log line or a repr.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.model.tokens import Token, next_look
from taskmq_rabbitmq.model.url import Endpoint, TokenFile

_log = contained_logger(__name__)
_JITTER: Final = 0.1


class TokenHolder:
    """The secret of one endpoint for its event loop: a token that is fetched and renewed, or the URL's password.

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

    def newer(self, secret: str) -> str | None:
        """The token, where `secret` is an older one."""
        return None if self._token is None or secret == self._token.secret else self._token.secret

    def token(self, then: Callable[[Token | BrokerUnavailable], None]) -> None:
        """Call `then` with the token, or with why there is none; at once, or once it has been fetched."""
        if self._source is None:
            then(Token(self._endpoint.password))
        elif self._token is not None and not self._is_stale and not self._has_expired(self._token):
            then(self._token)
        else:
            self._asked.append(then)
            self._fetch()

    async def secret(self) -> str:
        """Return the token or password.

        Raises:
            BrokerUnavailable: there is none.
        """
        return (await self.fetch_token()).secret

    async def fetch_token(self) -> Token:
        """Return the token, or the password if the endpoint has no tokens.

        Raises:
            BrokerUnavailable: there is none.
        """
        found: asyncio.Future[Token] = self._loop.create_future()

        def take(answer: Token | BrokerUnavailable) -> None:
            if found.done():
                return
            if isinstance(answer, BrokerUnavailable):
                found.set_exception(answer)
            else:
                found.set_result(answer)

        self.token(take)
        return await found

    def on_refusal(self, secret: str) -> None:
        """Record that the broker refused `secret`: a newer one is fetched before the next attempt."""
        if self.newer(secret) is None:
            self._is_stale = True

    def remedy(self, token: Token) -> str:
        """Return what to do when the broker refuses this token."""
        ago = None if token.expires is None else self._now() - token.expires
        if ago is not None and ago > 0:
            return f"the token of {self._place} expired {ago:,.0f} s ago and there is no newer one"
        return "check the token's audience, issuer and scopes against the node's settings"

    def close(self) -> None:
        """Stop renewing the token."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._asked.clear()
        self._renewed.clear()

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
        # A separate thread: tasks may occupy all threads of the loop's executor, which are also joined at exit.
        threading.Thread(target=self._fetch_in_thread, name="taskmq token", daemon=True).start()

    def _fetch_in_thread(self) -> None:
        # Imported on demand: only endpoints with tokens need the HTTP client.
        from taskmq_rabbitmq.connect.token_sources import fetch

        try:
            found: Token | BrokerUnavailable = fetch(self._endpoint, now=self._now)
        except BrokerUnavailable as error:
            found = error
        # If the loop was closed, no caller waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_fetch, found)

    def _on_fetch(self, found: Token | BrokerUnavailable) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        if isinstance(found, BrokerUnavailable):
            self._on_failure(found)
        else:
            self._hold(found)
        asked, self._asked = self._asked, []
        for answer in asked:
            answer(found)

    def _on_failure(self, error: BrokerUnavailable) -> None:
        if self._token is None:
            # The caller gets the error and retries.
            return
        if not self._is_failing:
            self._is_failing = True
            _log.warning("%s: renewing the token failed%s, will retry: %s", self, self._remaining(), error)
        self._schedule(self._backoff.next())

    def _hold(self, token: Token) -> None:
        is_new = self._token is None or token.secret != self._token.secret
        had_one = self._token is not None
        self._token = token
        self._is_stale = False
        self._backoff.reset()
        if is_new and had_one:
            _log.debug("%s: token renewed", self)
            for call in self._renewed:
                call(token.secret)
        if is_new:
            self._is_failing = False
        elif not self._is_failing and self._has_expired(token):
            self._is_failing = True
            _log.warning("%s: renewing the token of %s failed%s", self, self._place, self._remaining())
        delay = next_look(token, now=self._now(), is_new=is_new)
        if delay is not None:
            self._schedule(delay * random.uniform(1 - _JITTER, 1))

    def _has_expired(self, token: Token) -> bool:
        return token.expires is not None and token.expires <= self._now()

    def _schedule(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self._fetch)

    def _remaining(self) -> str:
        if self._token is None or self._token.expires is None:
            return ""
        left = self._token.expires - self._now()
        return f" (it expires in {left:,.0f} s)" if left > 0 else " (it has expired)"
