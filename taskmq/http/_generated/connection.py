# Generated from taskmq/http/aio/connection.py by `python -m tests.house.blocking_client`: change that one.
"""The connection to a server: requests are sent and repeated where that is safe, their answers and pages are read."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import httpx

from taskmq.errors import ServerUnavailable, TaskMQError
from taskmq.http.exchange import (
    ListedPage,
    Prepared,
    address_of,
    check_secrecy,
    decoded,
    error_of,
    headers_of,
    prepared,
    retry_after_of,
    trust_in,
)
from taskmq.http.retries import Retries

__all__ = ["HttpConnection", "every"]

T = TypeVar("T")
CursorT = TypeVar("CursorT")

# Nothing has left this machine.
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BUSY: Final = frozenset({502, 503, 504})
_TOO_MANY: Final = 429
# A stream says every fifteen seconds that it lives.
_STREAM_SECONDS: Final = 60.0


class HttpConnection:
    """Asks a server in the name of one caller, for one tenant.

    Args:
        url: the server's; default `$TASKMQ_SERVER`.
        token: of the caller; default `$TASKMQ_TOKEN`.
        tenant: whose things are meant.
        timeout: seconds that a server has for an answer.
        http: a client of one's own, for proxies and certificates; it is not closed.
        insecure: secrets may go to another machine without TLS; default: whether `$TASKMQ_INSECURE` says so.

    Raises:
        InvalidSetting: the URL or the token cannot be, or others could read the token on the way.
    """

    def __init__(
        self,
        url: str | None,
        *,
        token: str | None,
        tenant: str | None,
        timeout: float,
        retries: Retries,
        http: httpx.Client | None,
        insecure: bool | None,
    ) -> None:
        self.address: str = address_of(url)
        self._insecure = insecure
        self._headers = headers_of(token, address=self.address, insecure=insecure)
        self._tenant = tenant
        self._timeout = timeout
        self._retries = retries
        self._is_own = http is None
        self._http = httpx.Client(verify=trust_in(self.address)) if http is None else http

    def for_tenant(self, tenant: str | None) -> "HttpConnection":
        """The same connection, for another tenant."""
        other = copy.copy(self)
        other._tenant, other._is_own = tenant, False  # noqa: SLF001 - one of the same class
        return other

    def present(self, token: str | None) -> None:
        """Present another token from now on; None: none.

        Raises:
            InvalidSetting: others could read it on the way.
        """
        self._headers = headers_of(token or "", address=self.address, insecure=self._insecure)

    def check_secrecy(self, what: str) -> None:
        """Return if a secret may be sent to this server.

        Raises:
            InvalidSetting: others could read it on the way.
        """
        check_secrecy(self.address, what=what, insecure=self._insecure)

    def close(self) -> None:
        """Close what is open; a client that was given stays."""
        if self._is_own:
            self._http.close()

    def ask(
        self,
        operation: str,
        answer: type[T],
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        version: int | None = None,
        key: str | None = None,
        repeats: bool = False,
    ) -> T:
        """Make one call and return its answer, decoded.

        Args:
            operation: its id.
            version: that the thing has to have; 0: it must not be there.
            key: makes the call safe to repeat.
            repeats: it is safe to repeat without one.

        Raises:
            ServerUnavailable: the server was not reached, or has not answered.
            TaskMQError: what the server refused it for.
        """
        request = prepared(
            operation,
            path=path or {},
            query=query or {},
            body=body,
            tenant=self._tenant,
            version=version,
            key=key,
            headers=self._headers,
        )
        if repeats:
            request = request._replace(repeats=True)
        response = self._answered(request)
        return decoded(response.content, answer, server=self.address)

    def lines(self, operation: str, *, query: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
        """The lines of a stream, until the server ends it.

        Raises:
            ServerUnavailable: the server was not reached, or the stream has broken off.
            TaskMQError: what the server refused it for.
        """
        request = prepared(
            operation,
            path={},
            query=query,
            body=None,
            tenant=self._tenant,
            version=None,
            key=None,
            headers={**self._headers, "accept": "text/event-stream", **headers},
        )
        url = f"{self.address}{request.path}"
        timeout = httpx.Timeout(self._timeout, read=_STREAM_SECONDS)
        try:
            with self._http.stream(request.method, url, headers=request.headers, timeout=timeout) as response:
                if not response.is_success:
                    content = response.read()
                    raise error_of(response.status_code, content, operation=request.operation, server=self.address)
                for line in response.iter_lines():
                    yield line
        except httpx.TransportError as error:
            raise self._unreached(error, is_certain=True) from error

    def _answered(self, request: Prepared) -> httpx.Response:
        """The answer of a request that has succeeded, after as many attempts as it takes."""
        attempt = 0
        while True:
            attempt += 1
            retry_after: float | None = None
            try:
                response = self._http.request(
                    request.method,
                    f"{self.address}{request.path}",
                    headers=request.headers,
                    content=request.content,
                    timeout=self._timeout,
                )
            except httpx.TransportError as failure:
                is_certain = isinstance(failure, _NOT_SENT)
                error: TaskMQError = self._unreached(failure, is_certain=is_certain)
                error.__cause__ = failure
                may_repeat = is_certain or request.repeats
            else:
                if response.is_success:
                    return response
                status = response.status_code
                error = error_of(status, response.content, operation=request.operation, server=self.address)
                retry_after = retry_after_of(response.headers)
                may_repeat = status == _TOO_MANY or (status in _BUSY and request.repeats)
            wait = self._retries.wait(attempt, retry_after=retry_after) if may_repeat else None
            if wait is None:
                raise error
            time.sleep(wait)

    def _unreached(self, failure: httpx.TransportError, *, is_certain: bool) -> ServerUnavailable:
        what = str(failure) or type(failure).__name__
        if is_certain:
            remedy = "is `taskmq server` running there?"
            return ServerUnavailable(f"no server answers at {self.address} ({what}): {remedy}", is_certain=True)
        return ServerUnavailable(
            f"the server at {self.address} has not answered ({what}): whether it has done what it was asked is not "
            "known",
            is_certain=False,
        )


def every(page: Callable[[CursorT | None], ListedPage[T, CursorT]]) -> Iterator[T]:
    """What is on all pages of a list; each page is asked for when the one before has been read.

    Args:
        page: asks for the page of a cursor; None: the first one.
    """
    cursor: CursorT | None = None
    while True:
        found = page(cursor)
        for one in found.items:
            yield one
        cursor = found.next
        if cursor is None:
            return
