"""Users and their roles."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from taskmq.access import PasswordSet
from taskmq.api.accounts import ChangedUserView, NewRole, UserView
from taskmq.api.sign_in import MembershipView, SessionView, TokenView
from taskmq.api.values import MOST_PER_PAGE
from taskmq.app_api.caller import AppAccounts
from taskmq.app_api.views import instant_text, render_all
from taskmq.contracts.identity import ApiToken, BrowserSession, CredentialStore, User, UserChange
from taskmq.errors import IdentityNotFound
from taskmq.model.identity import Membership, Role


class AppUsers(AppAccounts):
    """Users by id. Methods raise `IdentityNotFound` and `IdentityConflict`."""

    async def add(
        self, name: str, password: str | None = None, *, email: str = "", memberships: Sequence[NewRole] = ()
    ) -> UserView:
        roles = tuple(map(membership_of, memberships))
        made = await self._administration().add_user(
            name, password, by=self._caller.actor(), email=email, memberships=roles
        )
        return user_view(made, roles)

    async def get(self, user_id: str) -> UserView:
        account = await self._accounts.account(user_id)
        if account is None:
            raise IdentityNotFound(f"user {user_id[:80]!r} not found")
        return user_view(account.user, account.memberships)

    async def change(
        self,
        user_id: str,
        *,
        is_disabled: bool | None = None,
        password: str | None = None,
        keep_tokens: bool = False,
    ) -> ChangedUserView:
        change = UserChange() if is_disabled is None else UserChange(is_disabled=is_disabled)
        by, done = self._caller.actor(), PasswordSet(0, 0, 0)
        if password is None:
            await self._administration().change_user(user_id, change, by=by)
        else:
            done = await self._administration().set_password(
                user_id, password, by=by, keeps_tokens=keep_tokens, change=change
            )
        facts = msgspec.structs.asdict(await self.get(user_id))
        return ChangedUserView(**facts, **msgspec.structs.asdict(done))

    async def erase(self, user_id: str) -> None:
        await self._administration().erase_user(user_id, by=self._caller.actor())

    async def set_role(
        self, user_id: str, tenant: str, role: Role, *, tasks: Sequence[str] = ("*",), groups: Sequence[str] = ()
    ) -> None:
        await self._administration().set_role(
            user_id, tenant, role, by=self._caller.actor(), tasks=tasks, groups=groups
        )

    async def remove_role(self, user_id: str, tenant: str) -> None:
        await self._administration().remove_role(user_id, tenant, by=self._caller.actor())

    async def sessions(self, user_id: str) -> Sequence[SessionView]:
        """List the active sessions of a user."""
        return [session_view(each, "") for each in await self._credentials.sessions(user_id)]

    async def tokens(self, user_id: str) -> Sequence[TokenView]:
        account = await self._accounts.account(user_id)
        user = "" if account is None else account.user.name
        return [token_view(each, user) for each in await self._credentials.tokens(user_id)]

    async def list(self) -> AsyncIterator[UserView]:
        """Iterate over the users, ordered by name."""
        after = ""
        while page := await self._accounts.users(after=after, limit=MOST_PER_PAGE):
            for user in page:
                yield user_view(user)
            after = page[-1].name

    @property
    def _credentials(self) -> CredentialStore:
        return self._app.sessions.store().identity.credentials


def user_view(user: User, memberships: tuple[Membership, ...] | None = None) -> UserView:
    """Build the API's view of a user, with roles if given."""
    return UserView(
        id=user.id,
        name=user.name,
        email=user.email,
        created=instant_text(user.created),
        version=user.version,
        disabled=instant_text(user.disabled),
        has_password=user.password_changed is not None,
        last_login=instant_text(user.last_login),
        memberships=None if memberships is None else render_all(membership_view, memberships),
    )


def membership_of(new: NewRole) -> Membership:
    """Return the role that a request gives."""
    return Membership(new.tenant, new.role, new.tasks, new.groups)


def membership_view(membership: Membership) -> MembershipView:
    """Build the API's view of a role."""
    return MembershipView(
        tenant=membership.tenant,
        role=membership.role,
        tasks=list(membership.tasks),
        groups=list(membership.groups),
    )


def token_view(token: ApiToken, user: str) -> TokenView:
    """Build the API's view of a token; `user` is the name of its owner."""
    return TokenView(
        id=token.id,
        user=user,
        name=token.name,
        scopes=None if token.scopes is None else sorted(token.scopes),
        tenants=None if token.tenants is None else sorted(token.tenants),
        tasks=list(token.tasks),
        created=instant_text(token.created),
        expires_at=instant_text(token.expires),
        last_used=instant_text(token.last_used),
    )


def session_view(session: BrowserSession, own: str) -> SessionView:
    return SessionView(
        id=session.id,
        created=instant_text(session.created),
        last_used=instant_text(session.last_used),
        ends=instant_text(min(session.last_used + session.idle_ms, session.ends)),
        address=session.address,
        agent=session.agent,
        is_own=session.id == own,
    )
