"""Tenants, users, sessions and tokens as values. Instants are ms since the epoch, by the store's clock."""

from typing import Literal

import msgspec

from taskmq.model.identity import AuditEntry, Membership, Permission

__all__ = [
    "Actor",
    "ApiToken",
    "BrowserSession",
    "NewApiToken",
    "NewBrowserSession",
    "NewUser",
    "Tenant",
    "User",
    "UserAccount",
    "UserChange",
]


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who changes something, and from where: what the audit entry of the change says.

    Attributes:
        user_id, user: who; of the command line `user_id` is "" and `user` the system's name.
        via, credential: by which credential; no secret.
        address: from where.
        request_id: of the request.
        key: by which the same request is known again, where it has one.
        note: why.
    """

    user_id: str = ""
    user: str = ""
    via: Literal["session", "token", "host", "cli", "oidc", "event"] = "cli"
    credential: str = ""
    address: str = ""
    request_id: str = ""
    key: str = ""
    note: str = ""

    def entry(
        self,
        action: str,
        *,
        kind: str = "",
        subject: str = "",
        tenant: str = "",
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> AuditEntry:
        """The audit entry of something that this actor has done."""
        return AuditEntry(
            action=action,
            kind=kind,
            subject=subject,
            tenant=tenant,
            user_id=self.user_id,
            user=self.user,
            via=self.via,
            credential=self.credential,
            address=self.address,
            request_id=self.request_id,
            before=before,
            after={**(after or {}), "key": self.key} if self.key else after,
            note=self.note,
        )


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant that was added; jobs may name others, which only the instance's roles can see.

    Attributes:
        disabled: since when only the instance's roles have access.
    """

    name: str
    description: str = ""
    created: int = 0
    disabled: int | None = None


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user who is added.

    Attributes:
        id: the store's key of them for good; a random UUID.
        password_hash: by argon2id; "": no password opens the account.
    """

    id: str
    name: str
    email: str = ""
    password_hash: str = ""
    memberships: tuple[Membership, ...] = ()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user who may sign in, or has been disabled.

    Attributes:
        version: grows by 1 with every change of the user.
        disabled: since when no credential of theirs is good.
        password_changed: when; None: they have none.
        last_login: when.
    """

    id: str
    name: str
    email: str = ""
    created: int
    version: int = 1
    disabled: int | None = None
    password_changed: int | None = None
    last_login: int | None = None


class UserChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a user. Unset fields stay as they are.

    Attributes:
        version: which they must have; None: any.
        password_hash: a new one ends their sessions, but for `keep_session`.
        revokes_tokens: all their tokens are revoked, too.
    """

    version: int | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    email: str | msgspec.UnsetType = msgspec.UNSET
    is_disabled: bool | msgspec.UnsetType = msgspec.UNSET
    password_hash: str | msgspec.UnsetType = msgspec.UNSET
    keep_session: str = ""
    revokes_tokens: bool = False


class NewBrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that begins.

    Attributes:
        id: its name for people, such as in lists; no secret.
        digest: of its secret.
        idle_ms: unused for so long it ends.
        longest_ms: after so long it ends, however it is used.
        agent: what the browser says that it is.
    """

    id: str
    user_id: str
    digest: bytes
    idle_ms: int
    longest_ms: int
    address: str = ""
    agent: str = ""


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has not ended."""

    id: str
    user_id: str
    created: int
    last_used: int
    idle_ms: int
    ends: int
    address: str = ""
    agent: str = ""


class NewApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is made.

    Attributes:
        id: its name for programs, such as in lists; no secret.
        name: its name for people, unique among its user's.
        digest: of its secret.
        scopes: what it is good for; None: for all that its user may do, but for their account.
        tenants: where it is good; None: wherever its user has a role.
        tasks: patterns of task names.
        expires: when it ends; None: never.
    """

    id: str
    user_id: str
    name: str
    digest: bytes
    scopes: frozenset[Permission] | None = None
    tenants: frozenset[str] | None = None
    tasks: tuple[str, ...] = ("*",)
    expires: int | None = None


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was not revoked; it may have expired. Attributes as in `NewApiToken`.

    Attributes:
        last_used: when, to the minute; None: never.
    """

    id: str
    user_id: str
    name: str
    scopes: frozenset[Permission] | None = None
    tenants: frozenset[str] | None = None
    tasks: tuple[str, ...] = ("*",)
    created: int
    expires: int | None = None
    last_used: int | None = None


class UserAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A user with what decides on what they may do.

    Attributes:
        memberships: of tenants that are not disabled.
    """

    user: User
    memberships: tuple[Membership, ...] = ()
