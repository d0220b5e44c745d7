"""`/tokens`: one's own API tokens."""

from typing import Any, Final

import msgspec
from litestar import Request, get, post
from litestar.handlers import delete
from litestar.params import FromPath, JSONBody

from taskmq.api.sign_in import NewTokenView, TokenBody, TokenList
from taskmq.app_api.accounts.users import token_view
from taskmq.app_api.views import milliseconds_of, rendered
from taskmq.errors import LoginThrottled, NotAuthenticated
from taskmq.model.identity import Permission, read_scopes
from taskmq.server.inputs import CallerGiven
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.server.sign_in import accounts_of

__all__ = ["TOKEN_HANDLERS"]


@get(
    f"{API}/tokens",
    permission=Permission.ACCOUNT_READ,
    operation_id="listTokens",
    summary="List one's own tokens",
    tags=["tokens"],
)
async def list_tokens(request: Request[Any, Any, Any], caller: CallerGiven) -> TokenList:
    """One's own tokens that were not revoked, without their secrets."""
    store = accounts_of(request.app.state).store
    return TokenList(rendered(token_view, await store.credentials.tokens(caller.identity.user_id)))


@post(
    f"{API}/tokens",
    status_code=201,
    permission=Permission.ACCOUNT_CHANGE,
    operation_id="addToken",
    summary="Make a token",
    tags=["tokens"],
)
async def add_token(data: JSONBody[TokenBody], request: Request[Any, Any, Any], caller: CallerGiven) -> NewTokenView:
    """Make a token of one's own; its secret is in this answer, and nowhere else.

    403 `confirmation_needed`: the last sign-in is more than five minutes ago; say `password`, or sign in again.
    """
    if caller.identity.via == "token":
        # It would outlive what it was made by, and could say more.
        raise Problem(403, "not_allowed", "a token makes no tokens: sign in")
    services = accounts_of(request.app.state)
    if caller.identity.via == "session":
        try:
            await services.access.confirm(caller.identity, data.password, address=caller.address)
        except LoginThrottled:
            raise
        except NotAuthenticated as error:
            raise Problem.about("password", str(error)) from None
    made = await services.administration.add_token(
        caller.identity.user_id,
        data.name,
        by=caller.actor(),
        scopes=None if data.scopes is None else read_scopes(data.scopes),
        tenants=None if data.tenants is None else frozenset(data.tenants),
        tasks=data.tasks,
        expires=None if data.expires_at is None else milliseconds_of(data.expires_at),
    )
    return NewTokenView(**msgspec.structs.asdict(token_view(made.token)), secret=made.secret)


@delete(
    f"{API}/tokens/{{token_id:str}}",
    status_code=200,
    permission=Permission.ACCOUNT_CHANGE,
    operation_id="revokeToken",
    summary="Revoke one's own token",
    tags=["tokens"],
)
async def revoke_token(
    token_id: FromPath[str], request: Request[Any, Any, Any], caller: CallerGiven
) -> dict[str, str]:
    """Revoke one of one's own tokens: nothing it is presented with is answered any more."""
    administration = accounts_of(request.app.state).administration
    await administration.revoke_token(token_id, user_id=caller.identity.user_id, by=caller.actor())
    return {"status": "revoked"}


TOKEN_HANDLERS: Final[tuple[Any, ...]] = (list_tokens, add_token, revoke_token)
