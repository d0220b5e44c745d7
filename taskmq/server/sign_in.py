"""From a request to who calls: an API token, or a session by its cookie or as a bearer.

Browsers send a cookie along at any site's request, so a change that comes with one has to bring the session's
CSRF token (`X-CSRF-Token`), too. What is presented by hand, in `Authorization`, does not.
"""

from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import State

from taskmq.access import Access, IdentityAdministration, PasswordHasher, SessionTimes
from taskmq.app import TaskMQ
from taskmq.contracts.identity import IdentityStore
from taskmq.errors import NotAuthenticated, NotPermitted
from taskmq.model.identity import Identity, is_token
from taskmq.server.edge import fact_of
from taskmq.server.problems import Problem

__all__ = [
    "SIGNATURE",
    "IdentityServices",
    "accounts_of",
    "cookie_name",
    "credential_of",
    "identify_by_store",
    "is_from_own_pages",
    "is_signed",
    "presented",
]

SIGNATURE: Final = "taskmq-signature"
"""The header by which senders of events from outside sign them."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST: Final = 512
_OWN_SITES: Final = frozenset({"same-origin", "none"})


class IdentityServices(NamedTuple):
    """Who may do what, as one server has it."""

    store: IdentityStore
    access: Access
    administration: IdentityAdministration


class Presented(NamedTuple):
    """The credential of a request.

    Attributes:
        is_cookie: the browser sends it along by itself.
    """

    token: str | None = None
    session: str | None = None
    is_cookie: bool = False


def accounts_of(state: State) -> IdentityServices:
    """The accounts of the app's store, opened at the first use.

    Raises:
        UnsupportedFeature: the app has no store.
    """
    found: IdentityServices | None = state.get("accounts")
    if found is None:
        app: TaskMQ = state["app"]
        store = app.sessions.store().identity
        hasher = PasswordHasher()
        times = SessionTimes(token=state["settings"].token_age)
        access = Access(store, clock=app.sessions.clock, hasher=hasher, times=times)
        found = IdentityServices(store, access, IdentityAdministration(store, hasher=hasher, access=access))
        state["accounts"] = found
    return found


async def identify_by_store(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
    """Who calls, by the accounts of the app's store.

    Raises:
        NotAuthenticated: no credential, or one that is not good.
        Problem: a change by a cookie's session came without its CSRF token.
        StoreUnavailable: the store could not be reached.
    """
    given = presented(connection)
    access = accounts_of(connection.app.state).access
    identity = await access.authenticate(token=given.token, session=given.session)
    if given.is_cookie and fact_of(connection.scope, "method") not in _SAFE:
        assert given.session is not None
        try:
            access.check_csrf(given.session, connection.headers.get("x-csrf-token"))
        except NotPermitted as error:
            raise Problem(403, "csrf_token_missing", str(error)) from None
    return identity


def presented(connection: ASGIConnection[Any, Any, Any, Any]) -> Presented:
    """The credential that a request brings; what is in `Authorization` counts before a cookie.

    Raises:
        NotAuthenticated: `Authorization` is of another kind.
    """
    header = connection.headers.get("authorization")
    if header is not None:
        kind, _, secret = header.partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret or len(secret) > _LONGEST:
            raise NotAuthenticated("present an API token: Authorization: Bearer TOKEN")
        return Presented(token=secret) if is_token(secret) else Presented(session=secret)
    cookie = connection.cookies.get(cookie_name(connection))
    return Presented(session=cookie[:_LONGEST] if cookie else None, is_cookie=cookie is not None)


def credential_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """The secret that identifies a request, in whatever form the host has it; None where no store is asked for it."""
    if is_signed(connection):
        return None
    header = connection.headers.get("authorization")
    if header is not None:
        return header.partition(" ")[2].strip() or header
    # A host that mounts the server has cookies of its own.
    return connection.cookies.get(cookie_name(connection)) or connection.headers.get("cookie")


def is_signed(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a request brings a signature, and no token."""
    return SIGNATURE in connection.headers and "authorization" not in connection.headers


def is_from_own_pages(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether no page of another site has sent a request, as far as browsers report that.

    `Sec-Fetch-Site` decides: a page cannot set it, and it holds behind proxies that change `Host`. Browsers leave it
    out for plain HTTP to other machines; there `Origin` has to name this host. Other programs send neither.
    """
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return site in _OWN_SITES
    origin = connection.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == connection.headers.get("host", "")


def cookie_name(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """What the session's cookie is called: over HTTPS one that no other host and no path can set."""
    return "__Host-taskmq" if fact_of(connection.scope, "scheme") == "https" else "taskmq"
