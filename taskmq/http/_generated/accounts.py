# Generated from taskmq/http/aio/accounts.py by `python -m tests.house.blocking_client`: change that one.
"""One's own account, and administration: users, tenants, roles, tokens, the audit."""

from collections.abc import Iterator, Sequence
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
from taskmq.http._generated.connection import HttpConnection, every
from taskmq.model.identity import Role

__all__ = [
    "AccountCalls",
    "AuditCalls",
    "SessionCalls",
    "TenantCalls",
    "TokenCalls",
    "UserCalls",
]

_Answer = dict[str, str]


class AccountCalls:
    """The caller. Methods raise `NotAuthenticated` without one."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def login(self, username: str, password: str) -> LoginView:
        """Begin a session, which this client presents from now on.

        Raises:
            InvalidSetting: others could read the password on the way; nothing was sent.
        """
        self._connection.check_secrecy("the password")
        begun = self._connection.ask("logIn", LoginView, body=LoginBody(username=username, password=password))
        self._connection.present(begun.token)
        return begun

    def logout(self) -> None:
        """End the session that this client presents."""
        self._connection.ask("logOut", _Answer)
        self._connection.present(None)

    def me(self) -> CallerView:
        """Who calls, and what they may do."""
        return self._connection.ask("getCaller", CallerView)

    def change_password(self, before: str, after: str, *, revoke_tokens: bool = False) -> PasswordView:
        """Change one's own password; all other sessions end, and on demand all API tokens."""
        body = PasswordBody(before=before, after=after, revoke_tokens=revoke_tokens)
        return self._connection.ask("changePassword", PasswordView, body=body)

    def authorize(self, token: str, action: str, resource: str | None = None) -> bool:
        """Whether the bearer of a token may do something to a tenant, or to the instance."""
        body = AuthorizeBody(token=token, action=action, resource=resource)
        return (self._connection.ask("authorize", AuthorizeView, body=body)).allowed


class TokenCalls:
    """One's own API tokens."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def add(
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
            password: one's own, where the last sign-in is more than five minutes ago.

        Raises:
            ConfirmationNeeded: it is, and there is no password.
            LimitReached: one has as many tokens as a user may have.
        """
        body = TokenBody(
            name=name,
            scopes=None if scopes is None else [*scopes],
            tenants=None if tenants is None else [*tenants],
            tasks=tuple(tasks),
            expires_at=expires_at,
            password=password,
        )
        return self._connection.ask("addToken", NewTokenView, body=body)

    def revoke(self, token_id: str) -> None:
        """Revoke a token: nothing it is presented with is answered any more."""
        self._connection.ask("revokeToken", _Answer, path={"token_id": token_id})

    def list(self) -> Sequence[TokenView]:
        """Those that were not revoked, without their secrets."""
        return (self._connection.ask("listTokens", TokenList)).items


class SessionCalls:
    """One's own sign-ins. Methods raise `IdentityNotFound`."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def end(self, session_id: str) -> None:
        """Sign oneself out elsewhere."""
        self._connection.ask("endSession", _Answer, path={"session_id": session_id})

    def list(self) -> Sequence[SessionView]:
        """Those that have not ended, the last one first."""
        return (self._connection.ask("listSessions", SessionList)).items


class UserCalls:
    """Users and their roles. Methods raise `IdentityNotFound` and `IdentityConflict`."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def sessions(self, user_id: str) -> Sequence[SessionView]:
        """Where a user is signed in."""
        return (self._connection.ask("listUserSessions", SessionList, path={"user_id": user_id})).items

    def end_session(self, user_id: str, session_id: str) -> None:
        """Sign a user out somewhere."""
        path = {"user_id": user_id, "session_id": session_id}
        self._connection.ask("endUserSession", _Answer, path=path)

    def tokens(self, user_id: str) -> Sequence[TokenView]:
        """A user's tokens that were not revoked, without their secrets."""
        return (self._connection.ask("listUserTokens", TokenList, path={"user_id": user_id})).items

    def revoke_token(self, user_id: str, token_id: str) -> None:
        """Revoke a token of a user."""
        path = {"user_id": user_id, "token_id": token_id}
        self._connection.ask("revokeUserToken", _Answer, path=path)

    def add(
        self, name: str, password: str | None = None, *, email: str = "", memberships: Sequence[NewRole] = ()
    ) -> UserView:
        """Add a user with their roles; without a password they have tokens only."""
        body = UserBody(name=name, password=password, email=email, memberships=[*memberships])
        return self._connection.ask("addUser", UserView, body=body)

    def get(self, user_id: str) -> UserView:
        """A user with their roles."""
        return self._connection.ask("getUser", UserView, path={"user_id": user_id})

    def change(
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
        """Change a user; what is not given stays.

        Args:
            password: another one ends their sessions, and revokes their API tokens.
            keep_tokens: their API tokens stay good.
        """
        body = UserChangeBody(
            name=msgspec.UNSET if name is None else name,
            email=msgspec.UNSET if email is None else email,
            is_disabled=msgspec.UNSET if is_disabled is None else is_disabled,
            password=msgspec.UNSET if password is None else password,
            keep_tokens=keep_tokens,
        )
        path = {"user_id": user_id}
        return self._connection.ask("changeUser", ChangedUserView, path=path, body=body, version=version)

    def erase(self, user_id: str) -> None:
        """Remove a user for good, with what the audit says about the person."""
        self._connection.ask("eraseUser", _Answer, path={"user_id": user_id})

    def set_role(self, user_id: str, tenant: str, role: Role, *, tasks: Sequence[str] = ("*",)) -> None:
        """Give a user a role on a tenant, `*` for the instance, in place of the one that they have there."""
        path = {"user_id": user_id, "role_tenant": tenant}
        self._connection.ask("setRole", _Answer, path=path, body=RoleBody(role=role, tasks=tuple(tasks)))

    def remove_role(self, user_id: str, tenant: str) -> None:
        """Take a user's role on a tenant away."""
        self._connection.ask("removeRole", _Answer, path={"user_id": user_id, "role_tenant": tenant})

    def page(self, *, after: str = "", limit: int = 50) -> UserList:
        """A page of the users; `next` is the `after` of the next one."""
        return self._connection.ask("listUsers", UserList, query={"after": after, "limit": limit})

    def list(self, *, page_size: int = 200) -> Iterator[UserView]:
        """All users, by name."""
        return every(lambda cursor: self.page(after=cursor or "", limit=page_size))


class TenantCalls:
    """Tenants, and who has which role there."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def add(self, name: str, *, description: str = "") -> TenantView:
        """Add a tenant; jobs that name it already are its own."""
        return self._connection.ask("addTenant", TenantView, body=TenantBody(name=name, description=description))

    def change(self, name: str, *, description: str | None = None, is_disabled: bool | None = None) -> TenantView:
        """Describe a tenant otherwise, or disable it."""
        body = TenantChangeBody(description=description, is_disabled=is_disabled)
        return self._connection.ask("changeTenant", TenantView, path={"name": name}, body=body)

    def remove(self, name: str) -> None:
        """Remove a tenant and its roles; its jobs stay."""
        self._connection.ask("removeTenant", _Answer, path={"name": name})

    def members(self) -> Sequence[MemberView]:
        """Who has which role."""
        return (self._connection.ask("listMembers", MemberList)).items

    def set_member(self, user: str, role: Role, *, tasks: Sequence[str] = ("*",)) -> None:
        """Give the user of that name a role in the client's tenant, in place of the one that they have there.

        Raises:
            IdentityNotFound: no user of that name has a role in a tenant of the caller's; an admin of the instance
                gives the first one.
        """
        body = RoleBody(role=role, tasks=tuple(tasks))
        self._connection.ask("setMember", _Answer, path={"user": user}, body=body)

    def remove_member(self, user: str) -> None:
        """Take the role in the client's tenant away from the user of that name."""
        self._connection.ask("removeMember", _Answer, path={"user": user})

    def list(self) -> Sequence[TenantView]:
        """The tenants in which one has a role."""
        return (self._connection.ask("listTenants", TenantList)).items


class AuditCalls:
    """What administrators and operators have done."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def verify(self, *, head: str = "") -> ChainView:
        """Whether the chain of all entries is whole.

        Args:
            head: POSITION:HASH that was written down: the chain has to have it.
        """
        return self._connection.ask("verifyAudit", ChainView, query={"head": head or None})

    def chain(self, *, after: int = 0, limit: int = 200) -> ChainLinks:
        """Sealed entries in the order of the chain; `next` is the `after` of those behind them."""
        return self._connection.ask("exportAudit", ChainLinks, query={"after": after, "limit": limit})

    def page(self, *, after: int | None = None, limit: int = 50, **which: Any) -> AuditEntries:
        """A page of the entries; `next` is the `after` of the next one.

        Args:
            which: as for `list`.
        """
        query = {**which, "after": after, "limit": limit}
        return self._connection.ask("listAuditEntries", AuditEntries, query=query)

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
    ) -> Iterator[AuditEntryView]:
        """All entries that fit, the last one first.

        Args:
            action: its beginning, such as `user.`.
        """
        which = {"action": action, "user_id": user_id, "kind": kind, "subject": subject}
        return every(lambda cursor: self.page(after=cursor, limit=page_size, since=since, until=until, **which))
