"""`/sessions`: the caller's sessions, and for administrators the sessions and tokens of all users."""

from typing import Any, Final

from litestar import Request
from litestar.params import FromPath

from taskmq.api.sign_in import SessionList, TokenList
from taskmq.app_api.accounts.users import session_view
from taskmq.app_api.views import render_all
from taskmq.model.identity import Permission
from taskmq.server.accounts.users import check_user
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven
from taskmq.server.sign_in import accounts_of

SESSION_HANDLERS: Final = Handlers("sessions")


@SESSION_HANDLERS.handle("GET /sessions", "listSessions", Permission.ACCOUNT_READ, "List your sessions")
async def list_sessions(request: Request[Any, Any, Any], caller: CallerGiven) -> SessionList:
    """Return the caller's active sessions."""
    return await _sessions(request, caller.identity.user_id, caller.identity.credential)


@SESSION_HANDLERS.handle(
    "DELETE /sessions/{session_id}", "endSession", Permission.ACCOUNT_CHANGE, "End one of your sessions"
)
async def end_session(
    session_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """End another session of the caller."""
    administration = accounts_of(request.app.state).administration
    await administration.end_session(session_id, user_id=caller.identity.user_id, by=caller.actor())
    return {"status": "ended"}


@SESSION_HANDLERS.handle(
    "GET /users/{user_id}/sessions", "listUserSessions", Permission.USERS_READ, "List a user's sessions"
)
async def list_user_sessions(
    user_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> SessionList:
    """Return a user's active sessions."""
    return await _sessions(request, user_id, caller.identity.credential)


@SESSION_HANDLERS.handle(
    "DELETE /users/{user_id}/sessions/{session_id}", "endUserSession", Permission.USERS_CHANGE, "End a user's session"
)
async def end_user_session(
    user_id: FromPath[str], session_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """End a session of a user."""
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    await administration.end_session(session_id, user_id=user_id, by=caller.actor())
    return {"status": "ended"}


@SESSION_HANDLERS.handle(
    "GET /users/{user_id}/tokens", "listUserTokens", Permission.USERS_READ, "List a user's tokens", tag="tokens"
)
async def list_user_tokens(api: ApiGiven, user_id: FromPath[str]) -> TokenList:
    """Return a user's active tokens, without their secrets."""
    return TokenList([*await api.users.tokens(user_id)])


@SESSION_HANDLERS.handle(
    "DELETE /users/{user_id}/tokens/{token_id}",
    "revokeUserToken",
    Permission.USERS_CHANGE,
    "Revoke a user's token",
    tag="tokens",
)
async def revoke_user_token(
    user_id: FromPath[str], token_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Revoke a token of a user. Requests with it are rejected from now on."""
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    await administration.revoke_token(token_id, user_id=user_id, by=caller.actor())
    return {"status": "revoked"}


async def _sessions(request: Request[Any, Any, Any], user_id: str, own: str) -> SessionList:
    found = await accounts_of(request.app.state).store.credentials.sessions(user_id)
    return SessionList(render_all(lambda session: session_view(session, own), found))
