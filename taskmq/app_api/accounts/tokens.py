"""API tokens, of one user or of everybody."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from taskmq.api.sign_in import NewTokenView, TokenView
from taskmq.app import TaskMQ
from taskmq.app_api.accounts.users import token_view
from taskmq.app_api.caller import ApiCaller, AppAccounts
from taskmq.app_api.views import milliseconds_of, rendered
from taskmq.errors import InvalidOption
from taskmq.model.identity import read_scopes

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration

__all__ = ["AppTokens"]

_PAGE = 1_000


class AppTokens(AppAccounts):
    """The API tokens of a user.

    Args:
        user_id: whose; None: everybody's, which can be listed and revoked.
        user: the user's name.
    """

    def __init__(
        self,
        app: TaskMQ,
        caller: ApiCaller,
        administration: "Callable[[], IdentityAdministration]",
        user_id: str | None,
        user: str,
    ) -> None:
        super().__init__(app, caller, administration)
        self._user_id = user_id
        self._user = user

    async def add(
        self,
        name: str,
        *,
        scopes: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        tasks: Sequence[str] = ("*",),
        expires_at: datetime | None = None,
        password: str | None = None,
    ) -> NewTokenView:
        """Make a token; its secret is in this answer, and nowhere else.

        Args:
            password: a server asks for it before it comes here.

        Raises:
            LimitReached: the user has as many tokens as a user may have.
        """
        del password
        if self._user_id is None:
            raise InvalidOption("whose token? Name a user")
        made = await self._administration().add_token(
            self._user_id,
            name,
            by=self._caller.actor(),
            scopes=None if scopes is None else read_scopes(scopes),
            tenants=None if tenants is None else frozenset(tenants),
            tasks=tasks,
            expires=None if expires_at is None else milliseconds_of(expires_at),
        )
        return NewTokenView(**msgspec.structs.asdict(token_view(made.token, self._user)), secret=made.secret)

    async def revoke(self, token_id: str) -> None:
        """Revoke a token: nothing it is presented with is answered any more."""
        await self._administration().revoke_token(token_id, user_id=self._user_id, by=self._caller.actor())

    async def list(self) -> Sequence[TokenView]:
        """Return the tokens that were not revoked, without their secrets."""
        credentials = self._app.sessions.store().identity.credentials
        names: dict[str, str] = {} if self._user_id is None else {self._user_id: self._user}
        after = ""
        while self._user_id is None and (page := await self._accounts.users(after=after, limit=_PAGE)):
            names |= {each.id: each.name for each in page}
            after = page[-1].name
        found = await credentials.tokens(self._user_id)
        return rendered(lambda token: token_view(token, names.get(token.user_id, "")), found)
