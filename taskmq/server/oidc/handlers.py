"""`/auth/oidc`: redirect to the provider, and the callback that starts a session."""

import base64
import binascii
import logging
import uuid
from contextlib import suppress
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import Cookie
from litestar.params import FromQuery

from taskmq.contracts.identity import Actor, UserAccount
from taskmq.errors import (
    IdentityConflict,
    IdentityNotFound,
    InvalidOption,
    NotAuthenticated,
    NotPermitted,
    ServerUnavailable,
)
from taskmq.model.identity import check_name
from taskmq.server.access import PUBLIC
from taskmq.server.edge import fact_of
from taskmq.server.handlers import Handlers
from taskmq.server.oidc.provider import OidcProvider, PendingLogin, ProvidedUser
from taskmq.server.problems import Problem
from taskmq.server.rates import RequestLimits
from taskmq.server.sign_in import accounts_of, cookie_name

OIDC_HANDLERS: Final = Handlers("sign-in")

_log = logging.getLogger("taskmq.server")

# Enough for a password, a second factor and a phone call.
_SECONDS: Final = 600
_LONGEST: Final = 2_000
_ACTOR: Final = "OIDC"


@OIDC_HANDLERS.handle(
    "GET /auth/oidc/login", "beginOidcLogin", PUBLIC, "Sign in with the provider", status_code=303, is_limited=True
)
async def begin_login(request: Request[Any, Any, Any], next: FromQuery[str] = "") -> Response[None]:  # noqa: A002 - the parameter's name
    """Redirect the browser to the provider. After sign-in it returns to `next`, a path of this server."""
    provider, following = _provider(request), _path(request, next)
    try:
        pending, where = await provider.begin(following)
    except ServerUnavailable as error:
        raise _unavailable(error) from error
    kept = base64.urlsafe_b64encode(msgspec.json.encode(pending)).decode()
    return Response(
        None, status_code=303, headers={"Location": where}, cookies=[_cookie(request, kept, seconds=_SECONDS)]
    )


@OIDC_HANDLERS.handle(
    "GET /auth/oidc/callback",
    "endOidcLogin",
    PUBLIC,
    "Complete the provider sign-in",
    status_code=303,
    is_limited=True,
    takes_any_parameter=True,
)
async def end_login(request: Request[Any, Any, Any]) -> Response[None]:
    """Complete the sign-in by `state` and `code`, start a session, and redirect the browser.

    The user's roles follow from their groups.
    """
    provider = _provider(request)
    address = "" if request.client is None else request.client.host
    try:
        pending = _pending(request)
        user = await provider.user(pending, dict(request.query_params.items()))
        begun = await _session(request, provider, user, address)
    except ServerUnavailable as error:
        raise _unavailable(error) from error
    limits: RequestLimits = request.app.state["limits"]
    limits.recognise(begun)
    is_secure = fact_of(request.scope, "scheme") == "https"
    session = Cookie(
        key=cookie_name(request), value=begun, path="/", secure=is_secure, httponly=True, samesite="strict"
    )
    cookies = [session, _cookie(request, "", seconds=0)]
    return Response(None, status_code=303, headers={"Location": pending.next}, cookies=cookies)


def _provider(request: Request[Any, Any, Any]) -> OidcProvider:
    found: OidcProvider | None = request.app.state.get("oidc")
    if found is None:
        raise Problem(404, "no_provider", "this server has no sign-in provider: sign in with name and password")
    return found


def _unavailable(error: ServerUnavailable) -> Problem:
    return Problem(503, "provider_unavailable", str(error), headers={"Retry-After": "5"})


def _path(request: Request[Any, Any, Any], wanted: str) -> str:
    """Return the path to redirect to, which must be on this server."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    if wanted and (not is_ours or len(wanted) > _LONGEST or not wanted.isascii()):
        raise Problem.about("next", "must be a path of this server", "such as /")
    return wanted or f"{fact_of(request.scope, 'taskmq_root')}/"


def _cookie_name(request: Request[Any, Any, Any]) -> str:
    return f"{cookie_name(request)}-oidc"


def _cookie(request: Request[Any, Any, Any], value: str, *, seconds: int) -> Cookie:
    # Lax: the browser returns from another site.
    is_secure = fact_of(request.scope, "scheme") == "https"
    return Cookie(
        key=_cookie_name(request),
        value=value,
        path="/",
        max_age=seconds,
        secure=is_secure,
        httponly=True,
        samesite="lax",
    )


def _pending(request: Request[Any, Any, Any]) -> PendingLogin:
    kept = request.cookies.get(_cookie_name(request), "")
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(kept), type=PendingLogin)
        following = _path(request, found.next)
    except (msgspec.MsgspecError, binascii.Error, ValueError, Problem):
        raise NotAuthenticated("no sign-in is pending in this browser, or it expired: start again") from None
    return msgspec.structs.replace(found, next=following)


async def _session(request: Request[Any, Any, Any], provider: OidcProvider, user: ProvidedUser, address: str) -> str:
    """Create or update the user and start a session. Returns its secret."""
    memberships = provider.settings.memberships(user.groups)
    services = accounts_of(request.app.state)
    request_id = fact_of(request.scope, "taskmq_request_id")
    # Derived only from issuer and subject, because names and addresses can pass to another person.
    user_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{provider.settings.issuer}\n{user.subject}"))
    actor = Actor(user=_ACTOR, via="oidc", address=address, request_id=request_id)

    async def keep(name: str) -> UserAccount:
        return await services.administration.keep_provided_user(
            user_id, name, email=user.email, memberships=memberships, by=actor
        )

    if not memberships:
        if await services.store.accounts.account(user_id) is not None:
            # The user loses their roles, except the last admin.
            with suppress(IdentityConflict):
                await keep(_own_name(user_id))
        _log.warning("OIDC: sign-in refused: none of the user's groups has a role here")
        raise NotPermitted("none of your groups has a role here")
    try:
        try:
            account = await keep(_name(user, user_id))
        except IdentityConflict:
            # Another user has the name, and must not lock this one out.
            account = await keep(_own_name(user_id))
    except (IdentityConflict, IdentityNotFound, InvalidOption) as error:
        _log.warning("OIDC: cannot save the user: %s", error)
        raise NotPermitted("your account could not be created; see the server's log") from None
    begun = await services.access.begin_session(
        account,
        address=address,
        agent=request.headers.get("user-agent", "").encode(errors="replace").decode(),
        request_id=request_id,
        replaces=request.cookies.get(cookie_name(request)),
    )
    return begun.secret


def _name(user: ProvidedUser, user_id: str) -> str:
    """Choose the user's name: the first valid one from the provider."""
    for name in (user.name, user.email):
        try:
            return check_name(name, what="user")
        except InvalidOption:
            continue
    return _own_name(user_id)


def _own_name(user_id: str) -> str:
    """Return a name that no other user has."""
    return f"oidc-{user_id[:8]}"
