"""API tokens of one user or of all users."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from taskmq.api.sign_in import NewTokenView, TokenView
from taskmq.app import TaskMQ
from taskmq.app_api.accounts.users import token_view
from taskmq.app_api.caller import ApiCaller, AppAccounts
from taskmq.app_api.views import milliseconds_of, render_all
from taskmq.errors import InvalidOption
from taskmq.model.identity import read_scopes

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration

_PAGE = 1_000


class AppTokens(AppAccounts):
    """The API tokens of a user.

    Args:
        user_id: the user's id; None for all users, whose tokens can only be listed and revoked.
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
        """Create a token. Its secret is only in the returned value.

        Args:
            password: ignored; a server has already checked it.

        Raises:
            LimitReached: the user has the maximum number of tokens.
        """
        del password
        if self._user_id is None:
            raise InvalidOption("a token needs a user: give a user name")
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
        await self._administration().revoke_token(token_id, user_id=self._user_id, by=self._caller.actor())

    async def list(self) -> Sequence[TokenView]:
        credentials = self._app.sessions.store().identity.credentials
        names: dict[str, str] = {} if self._user_id is None else {self._user_id: self._user}
        after = ""
        while self._user_id is None and (page := await self._accounts.users(after=after, limit=_PAGE)):
            names |= {each.id: each.name for each in page}
            after = page[-1].name
        found = await credentials.tokens(self._user_id)
        return render_all(lambda token: token_view(token, names.get(token.user_id, "")), found)
