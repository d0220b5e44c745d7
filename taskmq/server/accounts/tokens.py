"""`/tokens`: the caller's own API tokens."""

from typing import Any, Final

from litestar import Request
from litestar.params import FromPath, JSONBody

from taskmq.api.sign_in import NewTokenView, TokenBody, TokenList
from taskmq.app_api.accounts.tokens import AppTokens
from taskmq.app_api.app_api import AppApi
from taskmq.errors import LoginThrottled, NotAuthenticated
from taskmq.model.identity import Permission
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven
from taskmq.server.problems import Problem
from taskmq.server.sign_in import accounts_of

TOKEN_HANDLERS: Final = Handlers("tokens")


@TOKEN_HANDLERS.handle("GET /tokens", "listTokens", Permission.ACCOUNT_READ, "List your tokens")
async def list_tokens(api: ApiGiven, caller: CallerGiven) -> TokenList:
    """Return the caller's active tokens, without their secrets."""
    return TokenList([*await _own(api, caller).list()])


@TOKEN_HANDLERS.handle("POST /tokens", "addToken", Permission.ACCOUNT_CHANGE, "Create a token", status_code=201)
async def add_token(
    api: ApiGiven, data: JSONBody[TokenBody], request: Request[Any, Any, Any], caller: CallerGiven
) -> NewTokenView:
    """Create a token for the caller. Its secret is only in this response.

    403 `confirmation_needed`: the last sign-in was more than five minutes ago; send `password`, or sign in again.
    """
    if caller.identity.via == "token":
        # It would outlive the token that created it, and could have more scopes.
        raise Problem(403, "not_allowed", "a token cannot create tokens: sign in")
    if caller.identity.via == "session":
        access = accounts_of(request.app.state).access
        try:
            await access.confirm(caller.identity, data.password, address=caller.address)
        except LoginThrottled:
            raise
        except NotAuthenticated as error:
            raise Problem.about("password", str(error)) from None
    return await _own(api, caller).add(
        data.name, scopes=data.scopes, tenants=data.tenants, tasks=data.tasks, expires_at=data.expires_at
    )


@TOKEN_HANDLERS.handle(
    "DELETE /tokens/{token_id}", "revokeToken", Permission.ACCOUNT_CHANGE, "Revoke one of your tokens"
)
async def revoke_token(api: ApiGiven, token_id: FromPath[str], caller: CallerGiven) -> dict[str, str]:
    """Revoke one of the caller's tokens. Requests with it are rejected from now on."""
    await _own(api, caller).revoke(token_id)
    return {"status": "revoked"}


def _own(api: AppApi, caller: Caller) -> AppTokens:
    return api.tokens_of(caller.identity.user_id, caller.name)
