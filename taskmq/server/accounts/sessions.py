"""`/sessions`: one's own, and for administrators the sessions and tokens of every user."""

from typing import Any, Final

from litestar import Request, get
from litestar.handlers import delete
from litestar.params import FromPath

from taskmq.api.sign_in import SessionList, TokenList
from taskmq.app_api.accounts.users import session_view
from taskmq.app_api.views import rendered
from taskmq.model.identity import Permission
from taskmq.server.accounts.users import check_user
from taskmq.server.inputs import ApiGiven, CallerGiven
from taskmq.server.settings import API
from taskmq.server.sign_in import accounts_of

__all__ = ["SESSION_HANDLERS"]


@get(
    f"{API}/sessions",
    permission=Permission.ACCOUNT_READ,
    operation_id="listSessions",
    summary="List one's own sessions",
    tags=["sessions"],
)
async def list_sessions(request: Request[Any, Any, Any], caller: CallerGiven) -> SessionList:
    """Where one is signed in."""
    return await _sessions(request, caller.identity.user_id, caller.identity.credential)


@delete(
    f"{API}/sessions/{{session_id:str}}",
    status_code=200,
    permission=Permission.ACCOUNT_CHANGE,
    operation_id="endSession",
    summary="End one's own session",
    tags=["sessions"],
)
async def end_session(
    session_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Sign oneself out elsewhere."""
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
    """Where a user is signed in."""
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
    """Sign a user out somewhere."""
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
    """A user's tokens that were not revoked, without their secrets."""
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
    """Revoke a token of a user: nothing it is presented with is answered any more."""
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
    return SessionList(rendered(lambda session: session_view(session, own), found))
