"""Tenants, users, sessions and tokens as values. Instants are ms since the epoch, by the store's clock."""

from typing import Literal

import msgspec

from taskmq.model.identity import AuditEntry, Membership, Permission


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The author of a change, for the change's audit entry.

    Attributes:
        user_id, user: the user; for the command line and Python code `user_id` is "" and `user` the system's name.
        via, credential: the credential; not secret.
        address: the address of the client.
        request_id: of the request.
        key: idempotency key of the request, if it has one.
        note: the reason.
    """

    user_id: str = ""
    user: str = ""
    via: Literal["session", "token", "host", "cli", "oidc", "event", "python"] = "cli"
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
        """Create the audit entry of an action of this actor."""
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
    """A tenant that was added; jobs may name others, which are visible only to the instance's roles.

    Attributes:
        disabled: start of the time in which only the instance's roles have access.
    """

    name: str
    description: str = ""
    created: int = 0
    disabled: int | None = None


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user to add.

    Attributes:
        id: permanent key of the user in the store; a random UUID.
        password_hash: by argon2id; "": the account has no password.
    """

    id: str
    name: str
    email: str = ""
    password_hash: str = ""
    memberships: tuple[Membership, ...] = ()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user who may sign in, or is disabled.

    Attributes:
        version: increases by 1 with every change of the user.
        disabled: start of the time in which all credentials of the user are invalid.
        password_changed: time of the last change; None: no password.
        last_login: time of the last login.
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
    """A change of a user. Unset fields stay unchanged.

    Attributes:
        version: version that the user must have; None: any.
        password_hash: a new one ends all sessions of the user except `keep_session`.
        revokes_tokens: whether all tokens of the user are revoked, too.
    """

    version: int | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    email: str | msgspec.UnsetType = msgspec.UNSET
    is_disabled: bool | msgspec.UnsetType = msgspec.UNSET
    password_hash: str | msgspec.UnsetType = msgspec.UNSET
    keep_session: str = ""
    revokes_tokens: bool = False


class NewBrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to create.

    Attributes:
        id: its name for people, such as in lists; not secret.
        digest: of its secret.
        idle_ms: ms without use until it ends.
        longest_ms: ms until it ends in any case.
        agent: user agent of the browser.
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
    """A token to create.

    Attributes:
        id: its name for programs, such as in lists; not secret.
        name: its name for people, unique among its user's.
        digest: of its secret.
        scopes: permissions that it is limited to; None: all of its user's except for their account.
        tenants: tenants that it is limited to; None: all of its user's.
        tasks: patterns of task names.
        expires: its expiry; None: never.
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
        last_used: time of the last use, to the minute; None: never.
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
    """A user with the facts that determine their permissions.

    Attributes:
        memberships: in tenants that are not disabled.
    """

    user: User
    memberships: tuple[Membership, ...] = ()
