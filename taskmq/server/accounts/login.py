"""`/auth`: signing in and out, and what one may do."""

from typing import Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.params import JSONBody

from taskmq.api.sign_in import (
    AuthorizeBody,
    AuthorizeView,
    CallerView,
    LoginBody,
    LoginView,
    MembershipView,
    PasswordBody,
    PasswordView,
)
from taskmq.app_api.views import instant_text
from taskmq.errors import InvalidOption, LoginThrottled, NotAuthenticated
from taskmq.model.identity import RULES, Identity, Permission, Place, is_token, may, scope_for
from taskmq.server.access import PUBLIC
from taskmq.server.edge import fact_of
from taskmq.server.inputs import CallerGiven
from taskmq.server.problems import Problem
from taskmq.server.rates import RequestLimits
from taskmq.server.settings import API
from taskmq.server.sign_in import accounts_of, cookie_name, is_from_own_pages, presented

__all__ = ["LOGIN_HANDLERS"]


async def log_in(data: JSONBody[LoginBody], request: Request[Any, Any, Any]) -> Response[LoginView]:
    """Begin a session. What is wrong with a login is never said; too many that fail have to wait (429)."""
    if not is_from_own_pages(request):
        raise Problem(403, "foreign_site", "a page of another site has sent this: sign in on the page of this server")
    limits: RequestLimits = request.app.state["limits"]
    attempt = limits.take_login(request, data.username)
    access = accounts_of(request.app.state).access
    replaced = request.cookies.get(cookie_name(request))
    begun = await access.login(
        data.username,
        data.password,
        address=_address(request),
        agent=request.headers.get("user-agent", "").encode(errors="replace").decode(),
        request_id=fact_of(request.scope, "taskmq_request_id"),
        replaces=replaced,
    )
    limits.recognise(attempt)
    limits.recognise(begun.secret)
    is_secure = fact_of(request.scope, "scheme") == "https"
    cookie = Cookie(
        key=cookie_name(request), value=begun.secret, path="/", secure=is_secure, httponly=True, samesite="strict"
    )
    view = LoginView(
        status="logged_in",
        user=begun.identity.user,
        token=begun.secret,
        csrf_token=begun.csrf,
        expires_at=instant_text(begun.ends),
    )
    return Response(view, cookies=[cookie])


async def log_out(request: Request[Any, Any, Any], caller: CallerGiven) -> Response[dict[str, str]]:
    """End the session that calls; a token stays, and is revoked where tokens are."""
    given = presented(request)
    if given.session is None:
        raise Problem(409, "no_session", "a token does not log out: revoke it")
    actor = caller.actor()
    await accounts_of(request.app.state).access.logout(given.session, by=actor)
    gone = Cookie(key=cookie_name(request), value="", path="/", max_age=0, httponly=True, samesite="strict")
    return Response({"status": "logged_out"}, cookies=[gone])


async def authorize(data: JSONBody[AuthorizeBody], request: Request[Any, Any, Any]) -> AuthorizeView:
    """Whether the bearer of a token may do something to a tenant, or to the instance."""
    if data.action not in set(Permission):
        raise Problem.about("action", f"there is no permission {data.action!r}", "such as jobs.read")
    access = accounts_of(request.app.state).access
    given = {"token" if is_token(data.token) else "session": data.token}
    limits: RequestLimits = request.app.state["limits"]
    identity = await limits.identify(request, lambda: access.authenticate(**given), credential=data.token)
    return AuthorizeView(may(identity, Permission(data.action), data.resource or None))


_LOGIN: Final[dict[str, Any]] = {
    "status_code": 200,
    "permission": PUBLIC,
    "changes_nothing": True,
    "summary": "Sign in",
    "tags": ["sign-in"],
}
_LOGOUT: Final[dict[str, Any]] = {
    "status_code": 200,
    "permission": Permission.ACCOUNT_READ,
    "changes_nothing": True,
    "summary": "Sign out",
    "tags": ["sign-in"],
}
_AUTHORIZE: Final[dict[str, Any]] = {
    "status_code": 200,
    "permission": PUBLIC,
    "changes_nothing": True,
    "summary": "Whether a token may do something",
    "tags": ["sign-in"],
}


@get(
    f"{API}/auth/me",
    permission=Permission.ACCOUNT_READ,
    operation_id="getCaller",
    summary="Who calls",
    tags=["sign-in"],
)
async def get_caller(request: Request[Any, Any, Any], caller: CallerGiven) -> CallerView:
    """Who calls, and what they may do."""
    identity = caller.identity
    given = presented(request) if identity.via == "session" else None
    # Other sites cannot read an answer, so a reader of it here is the page that the session is of.
    csrf = (
        accounts_of(request.app.state).access.csrf_token(given.session)
        if given and given.is_cookie and given.session
        else None
    )
    return CallerView(
        user_id=identity.user_id,
        user=identity.user,
        via=identity.via,
        memberships=[
            MembershipView(tenant=one.tenant, role=one.role, tasks=list(one.tasks)) for one in identity.memberships
        ],
        scopes=None if identity.scopes is None else sorted(identity.scopes),
        permissions=sorted(each for each in Permission if _may_somewhere(identity, each)),
        csrf_token=csrf,
    )


@post(
    f"{API}/auth/password",
    status_code=200,
    permission=Permission.ACCOUNT_CHANGE,
    operation_id="changePassword",
    summary="Change one's own password",
    tags=["sign-in"],
)
async def change_password(
    data: JSONBody[PasswordBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> PasswordView:
    """Change one's own password; all other sessions end, and on demand all API tokens.

    Five wrong present passwords within a quarter of an hour end the session, or revoke the token, that calls.
    """
    actor = caller.actor()
    administration = accounts_of(request.app.state).administration
    try:
        done = await administration.change_own_password(
            caller.identity, data.before, data.after, by=actor, keeps_tokens=not data.revoke_tokens
        )
    except LoginThrottled:
        raise
    except NotAuthenticated as error:
        raise Problem.about("before", str(error)) from None
    except InvalidOption as error:
        raise Problem.about("after", str(error)) from None
    return PasswordView(status="updated", **msgspec.structs.asdict(done))


LOGIN_HANDLERS: Final[tuple[Any, ...]] = (
    post(f"{API}/auth/login", operation_id="logIn", **_LOGIN)(log_in),
    post("/auth/login", operation_id="logInOfDocument", **_LOGIN)(log_in),
    post(f"{API}/auth/logout", operation_id="logOut", **_LOGOUT)(log_out),
    post("/auth/logout", operation_id="logOutOfDocument", **_LOGOUT)(log_out),
    post(f"{API}/auth/authorize", operation_id="authorize", **_AUTHORIZE)(authorize),
    post("/auth/authorize", operation_id="authorizeOfDocument", **_AUTHORIZE)(authorize),
    get_caller,
    change_password,
)


def _may_somewhere(identity: Identity, permission: Permission) -> bool:
    if RULES[permission].place is not Place.TENANT:
        return may(identity, permission)
    tenants = scope_for(identity, permission).tenants
    return tenants is None or bool(tenants)


def _address(request: Request[Any, Any, Any]) -> str:
    return "" if request.client is None else request.client.host
