"""`/auth`: sign-in, sign-out and permission checks."""

from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import Cookie
from litestar.params import JSONBody

from taskmq.api.sign_in import (
    AuthorizeBody,
    AuthorizeView,
    CallerView,
    LoginBody,
    LoginView,
    PasswordBody,
    PasswordView,
)
from taskmq.app_api.accounts.users import membership_view
from taskmq.app_api.views import instant_text, render_all
from taskmq.errors import InvalidOption, LoginThrottled, NotAuthenticated
from taskmq.model.identity import RULES, Identity, Level, Permission, is_token, may, scope_for
from taskmq.server.access import PUBLIC
from taskmq.server.edge import fact_of
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven
from taskmq.server.problems import Problem
from taskmq.server.rates import RequestLimits
from taskmq.server.sign_in import accounts_of, cookie_name, credential_in, is_from_own_pages

LOGIN_HANDLERS: Final = Handlers("sign-in")


@LOGIN_HANDLERS.handle(
    "POST /auth/login", "logInCompat", PUBLIC, "Sign in", changes_nothing=True, is_compatible=True, tag="sign-in"
)
@LOGIN_HANDLERS.handle("POST /auth/login", "logIn", PUBLIC, "Sign in", changes_nothing=True)
async def log_in(data: JSONBody[LoginBody], request: Request[Any, Any, Any]) -> Response[LoginView]:
    """Start a session. A rejected sign-in gives no reason, and repeated failures are throttled (429)."""
    if not is_from_own_pages(request):
        raise Problem(
            403, "foreign_site", "the request came from another site's page: sign in on this server's own page"
        )
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


@LOGIN_HANDLERS.handle(
    "POST /auth/logout",
    "logOutCompat",
    Permission.ACCOUNT_READ,
    "Sign out",
    changes_nothing=True,
    is_compatible=True,
    tag="sign-in",
)
@LOGIN_HANDLERS.handle("POST /auth/logout", "logOut", Permission.ACCOUNT_READ, "Sign out", changes_nothing=True)
async def log_out(request: Request[Any, Any, Any], caller: CallerGiven) -> Response[dict[str, str]]:
    """End the session of this request. A token cannot sign out; revoke it instead."""
    given = credential_in(request)
    if given.session is None:
        raise Problem(409, "no_session", "a token cannot sign out: revoke it")
    actor = caller.actor()
    await accounts_of(request.app.state).access.logout(given.session, by=actor)
    gone = Cookie(key=cookie_name(request), value="", path="/", max_age=0, httponly=True, samesite="strict")
    return Response({"status": "logged_out"}, cookies=[gone])


@LOGIN_HANDLERS.handle(
    "POST /auth/authorize",
    "authorizeCompat",
    PUBLIC,
    "Check a token's permission",
    changes_nothing=True,
    is_compatible=True,
    tag="sign-in",
)
@LOGIN_HANDLERS.handle(
    "POST /auth/authorize",
    "authorize",
    PUBLIC,
    "Check a token's permission",
    changes_nothing=True,
    repeats=True,
)
async def authorize(data: JSONBody[AuthorizeBody], request: Request[Any, Any, Any]) -> AuthorizeView:
    """Check whether a token's bearer may perform an action on a tenant or the instance."""
    if data.action not in set(Permission):
        raise Problem.about("action", f"unknown permission {data.action!r}", "a permission such as jobs.read")
    access = accounts_of(request.app.state).access
    given = {"token" if is_token(data.token) else "session": data.token}
    limits: RequestLimits = request.app.state["limits"]
    identity = await limits.identify(request, lambda: access.authenticate(**given), credential=data.token)
    return AuthorizeView(may(identity, Permission(data.action), data.resource or None))


@LOGIN_HANDLERS.handle("GET /auth/me", "getCaller", Permission.ACCOUNT_READ, "Get the current caller")
async def get_caller(request: Request[Any, Any, Any], caller: CallerGiven) -> CallerView:
    """Return the caller with their roles and permissions."""
    identity = caller.identity
    given = credential_in(request) if identity.via == "session" else None
    # Other sites cannot read the response, so only the session's own page receives the CSRF token.
    csrf = (
        accounts_of(request.app.state).access.csrf_token(given.session)
        if given and given.is_cookie and given.session
        else None
    )
    return CallerView(
        user_id=identity.user_id,
        user=identity.user,
        via=identity.via,
        memberships=render_all(membership_view, identity.memberships),
        scopes=None if identity.scopes is None else sorted(identity.scopes),
        permissions=sorted(each for each in Permission if _may_somewhere(identity, each)),
        csrf_token=csrf,
    )


@LOGIN_HANDLERS.handle("POST /auth/password", "changePassword", Permission.ACCOUNT_CHANGE, "Change your password")
async def change_password(
    data: JSONBody[PasswordBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> PasswordView:
    """Change the caller's password. All their other sessions end; API tokens are revoked on request.

    Five wrong current passwords within 15 minutes end the session or revoke the token of this request.
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


def _may_somewhere(identity: Identity, permission: Permission) -> bool:
    if RULES[permission].level is not Level.TENANT:
        return may(identity, permission)
    tenants = scope_for(identity, permission).tenants
    return tenants is None or bool(tenants)


def _address(request: Request[Any, Any, Any]) -> str:
    return "" if request.client is None else request.client.host
