"""Identification of a request's caller: by an API token, or by a session in a cookie or bearer header.

Browsers send cookies with requests from any site. A change with a session cookie therefore also needs the session's
CSRF token (`X-CSRF-Token`). Credentials in `Authorization` do not.
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

SIGNATURE: Final = "taskmq-signature"
"""The signature header of external events."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST: Final = 512
_OWN_SITES: Final = frozenset({"same-origin", "none"})


class IdentityServices(NamedTuple):
    """The store, access checks and administration of accounts in one server."""

    store: IdentityStore
    access: Access
    administration: IdentityAdministration


class Presented(NamedTuple):
    """The credential of a request.

    Attributes:
        is_cookie: whether the browser sends it automatically.
    """

    token: str | None = None
    session: str | None = None
    is_cookie: bool = False


def accounts_of(state: State) -> IdentityServices:
    """Return the accounts of the app's store, created on first use.

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
    """Identify the caller by the accounts of the app's store.

    Raises:
        NotAuthenticated: the credential is missing or invalid.
        Problem: a change with a session cookie lacks its CSRF token.
        StoreUnavailable: the store is unreachable.
    """
    given = credential_in(connection)
    access = accounts_of(connection.app.state).access
    identity = await access.authenticate(token=given.token, session=given.session)
    if given.is_cookie and fact_of(connection.scope, "method") not in _SAFE:
        assert given.session is not None
        try:
            access.check_csrf(given.session, connection.headers.get("x-csrf-token"))
        except NotPermitted as error:
            raise Problem(403, "csrf_token_missing", str(error)) from None
    return identity


def credential_in(connection: ASGIConnection[Any, Any, Any, Any]) -> Presented:
    """Return the request's credential. `Authorization` takes precedence over a cookie.

    Raises:
        NotAuthenticated: `Authorization` has another scheme.
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
    """Return the secret that identifies a request, in the host's form; None for a signed request, which needs no
    store.
    """
    if is_signed(connection):
        return None
    header = connection.headers.get("authorization")
    if header is not None:
        return header.partition(" ")[2].strip() or header
    # A host that mounts the server has its own cookies.
    return connection.cookies.get(cookie_name(connection)) or connection.headers.get("cookie")


def is_signed(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a request has a signature and no token."""
    return SIGNATURE in connection.headers and "authorization" not in connection.headers


def is_from_own_pages(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a request comes from our own pages or from a program, as far as browsers report that.

    `Sec-Fetch-Site` decides: pages cannot set it, and it survives proxies that change `Host`. Browsers omit it for
    plain HTTP to other machines; then `Origin` must name this host. Other programs send neither.
    """
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return site in _OWN_SITES
    origin = connection.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == connection.headers.get("host", "")


def cookie_name(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the name of the session cookie; over HTTPS one that no other host or path can set."""
    return "__Host-taskmq" if fact_of(connection.scope, "scheme") == "https" else "taskmq"
