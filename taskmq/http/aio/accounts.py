"""The caller's account, and administration: users, tenants, roles, tokens, the audit log."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskmq.api.accounts import (
    AuditEntries,
    AuditEntryView,
    ChainLinks,
    ChainView,
    ChangedUserView,
    MemberList,
    MemberView,
    NewRole,
    RoleBody,
    TenantBody,
    TenantChangeBody,
    TenantList,
    TenantView,
    UserBody,
    UserChangeBody,
    UserList,
    UserView,
)
from taskmq.api.sign_in import (
    AuthorizeBody,
    AuthorizeView,
    CallerView,
    LoginBody,
    LoginView,
    NewTokenView,
    PasswordBody,
    PasswordView,
    SessionList,
    SessionView,
    TokenBody,
    TokenList,
    TokenView,
)
from taskmq.http.aio.connection import AsyncCalls, every
from taskmq.model.identity import Role

_Answer = dict[str, str]


class AsyncAccountCalls(AsyncCalls):
    """The current caller. Methods raise `NotAuthenticated` without one."""

    async def login(self, username: str, password: str) -> LoginView:
        """Start a session, which this client uses from now on.

        Raises:
            InvalidSetting: the password could be read on the way; nothing was sent.
        """
        self._connection.check_secrecy("the password")
        begun = await self._connection.ask("logIn", LoginView, body=LoginBody(username=username, password=password))
        self._connection.present(begun.token)
        return begun

    async def logout(self) -> None:
        """End the session that this client uses."""
        await self._connection.ask("logOut", _Answer)
        self._connection.present(None)

    async def me(self) -> CallerView:
        """Return the caller with their roles and permissions."""
        return await self._connection.ask("getCaller", CallerView)

    async def change_password(self, before: str, after: str, *, revoke_tokens: bool = False) -> PasswordView:
        """Change the caller's password. All their other sessions end; API tokens are revoked on request."""
        body = PasswordBody(before=before, after=after, revoke_tokens=revoke_tokens)
        return await self._connection.ask("changePassword", PasswordView, body=body)

    async def authorize(self, token: str, action: str, resource: str | None = None) -> bool:
        """Return whether a token's bearer may perform an action on a tenant or the instance."""
        body = AuthorizeBody(token=token, action=action, resource=resource)
        return (await self._connection.ask("authorize", AuthorizeView, body=body)).allowed


class AsyncTokenCalls(AsyncCalls):
    """The caller's own API tokens."""

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
            password: the caller's own, required if the last sign-in was more than five minutes ago.

        Raises:
            ConfirmationNeeded: the password is required and missing.
            LimitReached: the caller has the maximum number of tokens.
        """
        body = TokenBody(
            name=name,
            scopes=None if scopes is None else [*scopes],
            tenants=None if tenants is None else [*tenants],
            tasks=tuple(tasks),
            expires_at=expires_at,
            password=password,
        )
        return await self._connection.ask("addToken", NewTokenView, body=body)

    async def revoke(self, token_id: str) -> None:
        """Revoke a token. Requests with it are rejected from now on."""
        await self._connection.ask("revokeToken", _Answer, path={"token_id": token_id})

    async def list(self) -> Sequence[TokenView]:
        """List the active tokens, without their secrets."""
        return (await self._connection.ask("listTokens", TokenList)).items


class AsyncSessionCalls(AsyncCalls):
    """The caller's own sessions. Methods raise `IdentityNotFound`."""

    async def end(self, session_id: str) -> None:
        """End another session of the caller."""
        await self._connection.ask("endSession", _Answer, path={"session_id": session_id})

    async def list(self) -> Sequence[SessionView]:
        """List the active sessions, newest first."""
        return (await self._connection.ask("listSessions", SessionList)).items


class AsyncUserCalls(AsyncCalls):
    """Users and their roles. Methods raise `IdentityNotFound` and `IdentityConflict`."""

    async def sessions(self, user_id: str) -> Sequence[SessionView]:
        """List a user's active sessions."""
        return (await self._connection.ask("listUserSessions", SessionList, path={"user_id": user_id})).items

    async def end_session(self, user_id: str, session_id: str) -> None:
        """End a session of a user."""
        path = {"user_id": user_id, "session_id": session_id}
        await self._connection.ask("endUserSession", _Answer, path=path)

    async def tokens(self, user_id: str) -> Sequence[TokenView]:
        """List a user's active tokens, without their secrets."""
        return (await self._connection.ask("listUserTokens", TokenList, path={"user_id": user_id})).items

    async def revoke_token(self, user_id: str, token_id: str) -> None:
        """Revoke a token of a user."""
        path = {"user_id": user_id, "token_id": token_id}
        await self._connection.ask("revokeUserToken", _Answer, path=path)

    async def add(
        self, name: str, password: str | None = None, *, email: str = "", memberships: Sequence[NewRole] = ()
    ) -> UserView:
        """Add a user with roles. A user without a password can only use API tokens."""
        body = UserBody(name=name, password=password, email=email, memberships=[*memberships])
        return await self._connection.ask("addUser", UserView, body=body)

    async def get(self, user_id: str) -> UserView:
        """Return a user with their roles."""
        return await self._connection.ask("getUser", UserView, path={"user_id": user_id})

    async def change(
        self,
        user_id: str,
        *,
        name: str | None = None,
        email: str | None = None,
        is_disabled: bool | None = None,
        password: str | None = None,
        keep_tokens: bool = False,
        version: int | None = None,
    ) -> ChangedUserView:
        """Change a user. Omitted fields stay unchanged.

        Args:
            password: a new password, which ends their sessions and revokes their API tokens.
            keep_tokens: keep their API tokens valid.
        """
        body = UserChangeBody(
            name=msgspec.UNSET if name is None else name,
            email=msgspec.UNSET if email is None else email,
            is_disabled=msgspec.UNSET if is_disabled is None else is_disabled,
            password=msgspec.UNSET if password is None else password,
            keep_tokens=keep_tokens,
        )
        path = {"user_id": user_id}
        return await self._connection.ask("changeUser", ChangedUserView, path=path, body=body, version=version)

    async def erase(self, user_id: str) -> None:
        """Remove a user permanently, with their personal data in the audit log."""
        await self._connection.ask("eraseUser", _Answer, path={"user_id": user_id})

    async def set_role(
        self, user_id: str, tenant: str, role: Role, *, tasks: Sequence[str] = ("*",), groups: Sequence[str] = ()
    ) -> None:
        """Give a user a role on a tenant, or on the instance (`*`), replacing their current one with its groups."""
        path = {"user_id": user_id, "role_tenant": tenant}
        body = RoleBody(role=role, tasks=tuple(tasks), groups=tuple(groups))
        await self._connection.ask("setRole", _Answer, path=path, body=body)

    async def remove_role(self, user_id: str, tenant: str) -> None:
        """Remove a user's role on a tenant."""
        await self._connection.ask("removeRole", _Answer, path={"user_id": user_id, "role_tenant": tenant})

    async def page(self, *, after: str = "", limit: int = 50) -> UserList:
        """Return a page of users; `next` is the `after` of the next page."""
        return await self._connection.ask("listUsers", UserList, query={"after": after, "limit": limit})

    def list(self, *, page_size: int = 200) -> AsyncIterator[UserView]:
        """Iterate over all users, ordered by name."""
        return every(lambda cursor: self.page(after=cursor or "", limit=page_size))


class AsyncTenantCalls(AsyncCalls):
    """Tenants and their members."""

    async def add(self, name: str, *, description: str = "") -> TenantView:
        """Add a tenant. Existing jobs with this tenant's name belong to it."""
        return await self._connection.ask(
            "addTenant", TenantView, body=TenantBody(name=name, description=description)
        )

    async def change(
        self, name: str, *, description: str | None = None, is_disabled: bool | None = None
    ) -> TenantView:
        """Change a tenant's description, or disable it."""
        body = TenantChangeBody(description=description, is_disabled=is_disabled)
        return await self._connection.ask("changeTenant", TenantView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Remove a tenant and its roles. Its jobs remain."""
        await self._connection.ask("removeTenant", _Answer, path={"name": name})

    async def members(self) -> Sequence[MemberView]:
        """List members and their roles."""
        return (await self._connection.ask("listMembers", MemberList)).items

    async def set_member(
        self, user: str, role: Role, *, tasks: Sequence[str] = ("*",), groups: Sequence[str] = ()
    ) -> None:
        """Give a user a role in the client's tenant, replacing their current one with its groups.

        Raises:
            IdentityNotFound: no user of that name has a role in one of the caller's tenants. An instance admin must
                give them their first role.
        """
        body = RoleBody(role=role, tasks=tuple(tasks), groups=tuple(groups))
        await self._connection.ask("setMember", _Answer, path={"user": user}, body=body)

    async def remove_member(self, user: str) -> None:
        """Remove a user's role in the client's tenant."""
        await self._connection.ask("removeMember", _Answer, path={"user": user})

    async def list(self) -> Sequence[TenantView]:
        """List the tenants in which the caller has a role."""
        return (await self._connection.ask("listTenants", TenantList)).items


class AsyncAuditCalls(AsyncCalls):
    """The audit log of administrators and operators."""

    async def verify(self, *, head: str = "") -> ChainView:
        """Verify the hash chain of all entries.

        Args:
            head: a POSITION:HASH recorded earlier, which the chain must contain.
        """
        return await self._connection.ask("verifyAudit", ChainView, query={"head": head or None})

    async def chain(self, *, after: int = 0, limit: int = 200) -> ChainLinks:
        """Return sealed entries in chain order; `next` is the `after` of the next page."""
        return await self._connection.ask("exportAudit", ChainLinks, query={"after": after, "limit": limit})

    async def page(self, *, after: int | None = None, limit: int = 50, **which: Any) -> AuditEntries:
        """Return a page of entries; `next` is the `after` of the next page.

        Args:
            which: filters, as for `list`.
        """
        query = {**which, "after": after, "limit": limit}
        return await self._connection.ask("listAuditEntries", AuditEntries, query=query)

    def list(
        self,
        *,
        action: str | None = None,
        user_id: str | None = None,
        kind: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
    ) -> AsyncIterator[AuditEntryView]:
        """Iterate over matching entries, newest first.

        Args:
            action: a prefix, such as `user.`.
        """
        which = {"action": action, "user_id": user_id, "kind": kind, "subject": subject}
        return every(lambda cursor: self.page(after=cursor, limit=page_size, since=since, until=until, **which))
