"""`/sessions`: the caller's sessions, and for administrators the sessions and tokens of all users."""

from typing import Any, Final

from litestar import Request, get
from litestar.handlers import delete
from litestar.params import FromPath

from taskmq.api.sign_in import SessionList, TokenList
from taskmq.app_api.accounts.users import session_view
from taskmq.app_api.views import render_all
from taskmq.model.identity import Permission
from taskmq.server.accounts.users import check_user
from taskmq.server.inputs import ApiGiven, CallerGiven
from taskmq.server.settings import API
from taskmq.server.sign_in import accounts_of


@get(
    f"{API}/sessions",
    permission=Permission.ACCOUNT_READ,
    operation_id="listSessions",
    summary="List your sessions",
    tags=["sessions"],
)
async def list_sessions(request: Request[Any, Any, Any], caller: CallerGiven) -> SessionList:
    """Return the caller's active sessions."""
    return await _sessions(request, caller.identity.user_id, caller.identity.credential)


@delete(
    f"{API}/sessions/{{session_id:str}}",
    status_code=200,
    permission=Permission.ACCOUNT_CHANGE,
    operation_id="endSession",
    summary="End one of your sessions",
    tags=["sessions"],
)
async def end_session(
    session_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """End another session of the caller."""
    administration = accounts_of(request.app.state).administration
    await administration.end_session(session_id, user_id=caller.identity.user_id, by=caller.actor())
    return {"status": "ended"}


@get(
    f"{API}/users/{{user_id:str}}/sessions",
    permission=Permission.USERS_READ,
    operation_id="listUserSessions",
    summary="List a user's sessions",
    tags=["sessions"],
)
async def list_user_sessions(
    user_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> SessionList:
    """Return a user's active sessions."""
    return await _sessions(request, user_id, caller.identity.credential)


@delete(
    f"{API}/users/{{user_id:str}}/sessions/{{session_id:str}}",
    status_code=200,
    permission=Permission.USERS_CHANGE,
    operation_id="endUserSession",
    summary="End a user's session",
    tags=["sessions"],
)
async def end_user_session(
    user_id: FromPath[str], session_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """End a session of a user."""
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    await administration.end_session(session_id, user_id=user_id, by=caller.actor())
    return {"status": "ended"}


@get(
    f"{API}/users/{{user_id:str}}/tokens",
    permission=Permission.USERS_READ,
    operation_id="listUserTokens",
    summary="List a user's tokens",
    tags=["tokens"],
)
async def list_user_tokens(api: ApiGiven, user_id: FromPath[str]) -> TokenList:
    """Return a user's active tokens, without their secrets."""
    return TokenList([*await api.users.tokens(user_id)])


@delete(
    f"{API}/users/{{user_id:str}}/tokens/{{token_id:str}}",
    status_code=200,
    permission=Permission.USERS_CHANGE,
    operation_id="revokeUserToken",
    summary="Revoke a user's token",
    tags=["tokens"],
)
async def revoke_user_token(
    user_id: FromPath[str], token_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Revoke a token of a user. Requests with it are rejected from now on."""
    administration = accounts_of(request.app.state).administration
    await check_user(request, caller, user_id)
    await administration.revoke_token(token_id, user_id=user_id, by=caller.actor())
    return {"status": "revoked"}


SESSION_HANDLERS: Final[tuple[Any, ...]] = (
    list_sessions,
    end_session,
    list_user_sessions,
    end_user_session,
    list_user_tokens,
    revoke_user_token,
)


async def _sessions(request: Request[Any, Any, Any], user_id: str, own: str) -> SessionList:
    found = await accounts_of(request.app.state).store.credentials.sessions(user_id)
    return SessionList(render_all(lambda session: session_view(session, own), found))
