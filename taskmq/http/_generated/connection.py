# Generated from taskmq/http/aio/connection.py by `python -m tests.house.blocking_client`: change that one.
"""The connection to a server: sends requests, retries them if that is safe, and reads responses and pages."""

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
    decode,
    error_of,
    headers_of,
    prepare,
    retry_after_of,
    tls_verification,
)
from taskmq.http.freshness import Freshness
from taskmq.http.retries import Retries

T = TypeVar("T")
CursorT = TypeVar("CursorT")

# The request was never sent.
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BUSY: Final = frozenset({502, 503, 504})
_TOO_MANY: Final = 429
# A stream sends a heartbeat every fifteen seconds.
_STREAM_SECONDS: Final = 60.0


class HttpConnection:
    """Sends requests to a server for one caller and tenant.

    Args:
        url: the server's URL. Default: `$TASKMQ_SERVER`.
        token: the caller's token. Default: `$TASKMQ_TOKEN`.
        tenant: the tenant of all requests.
        timeout: the time limit of a response, in seconds.
        max_age: the largest age of lists and counts, in seconds; None accepts that of the server.
        http: a custom httpx client, for proxies and certificates; it is not closed.
        insecure: allow secrets without TLS to another machine. Default: the value of `$TASKMQ_INSECURE`.

    Raises:
        InvalidSetting: the URL or token is invalid, or the token could be read on the way.
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
        max_age: float | None,
    ) -> None:
        self.address: str = address_of(url)
        self.freshness: Freshness = Freshness(max_age)
        self._insecure = insecure
        self._headers = headers_of(token, address=self.address, insecure=insecure)
        self._tenant = tenant
        self._timeout = timeout
        self._retries = retries
        self._is_own = http is None
        self._http = httpx.Client(verify=tls_verification(self.address)) if http is None else http

    def for_tenant(self, tenant: str | None) -> "HttpConnection":
        """Return the same connection for another tenant."""
        other = copy.copy(self)
        other._tenant, other._is_own = tenant, False  # noqa: SLF001 - one of the same class
        return other

    def present(self, token: str | None) -> None:
        """Use another token from now on; None for none.

        Raises:
            InvalidSetting: the token could be read on the way.
        """
        self._headers = headers_of(token or "", address=self.address, insecure=self._insecure)

    def check_secrecy(self, what: str) -> None:
        """Check that a secret may be sent to this server.

        Raises:
            InvalidSetting: the secret could be read on the way.
        """
        check_secrecy(self.address, what=what, insecure=self._insecure)

    def close(self) -> None:
        """Close the connections, except those of a custom httpx client."""
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
        """Send one request and return the decoded response.

        Args:
            operation: the operation's id.
            version: the version the object must have; 0 if it must not exist.
            key: an idempotency key, which makes the request safe to repeat.
            repeats: whether it is safe to repeat without a key.

        Raises:
            ServerUnavailable: the server was unreachable, or did not answer.
            TaskMQError: the server refused the request.
        """
        request = prepare(
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
        response = self._send(request)
        return decode(response.content, answer, server=self.address)

    def lines(self, operation: str, *, query: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
        """Iterate over the lines of a stream until the server ends it.

        Raises:
            ServerUnavailable: the server was unreachable, or the stream was interrupted.
            TaskMQError: the server refused the request.
        """
        request = prepare(
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
            raise self._unavailable(error, is_certain=True) from error

    def _send(self, request: Prepared) -> httpx.Response:
        """Send a request with retries and return the successful response."""
        attempt = 0
        while True:
            attempt += 1
            retry_after: float | None = None
            try:
                response = self._http.request(
                    request.method,
                    f"{self.address}{request.path}",
                    headers={**request.headers, **self.freshness.headers_of(request.method)},
                    content=request.content,
                    timeout=self._timeout,
                )
            except httpx.TransportError as failure:
                is_certain = isinstance(failure, _NOT_SENT)
                error: TaskMQError = self._unavailable(failure, is_certain=is_certain)
                error.__cause__ = failure
                may_repeat = is_certain or request.repeats
            else:
                if response.is_success:
                    self.freshness.note_response(request.method, response.headers)
                    return response
                status = response.status_code
                error = error_of(status, response.content, operation=request.operation, server=self.address)
                retry_after = retry_after_of(response.headers)
                may_repeat = status == _TOO_MANY or (status in _BUSY and request.repeats)
            finally:
                self.freshness.note_end(request.method)
            wait = self._retries.wait(attempt, retry_after=retry_after) if may_repeat else None
            if wait is None:
                raise error
            time.sleep(wait)

    def _unavailable(self, failure: httpx.TransportError, *, is_certain: bool) -> ServerUnavailable:
        what = str(failure) or type(failure).__name__
        if is_certain:
            remedy = "is `taskmq server` running there?"
            return ServerUnavailable(f"no server answers at {self.address} ({what}): {remedy}", is_certain=True)
        return ServerUnavailable(
            f"the server at {self.address} did not answer ({what}); the request may have been applied",
            is_certain=False,
        )


def every(page: Callable[[CursorT | None], ListedPage[T, CursorT]]) -> Iterator[T]:
    """Iterate over all pages of a list; each page is requested after the previous one was read.

    Args:
        page: requests the page of a cursor; None for the first page.
    """
    cursor: CursorT | None = None
    while True:
        found = page(cursor)
        for one in found.items:
            yield one
        cursor = found.next
        if cursor is None:
            return


class Calls:
    """Calls about one kind of resource."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
