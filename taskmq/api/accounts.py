"""Users, tenants, members and the audit log."""

from typing import Any

import msgspec

from taskmq.api.sign_in import MembershipView
from taskmq.api.values import Note, Secret, ShortText
from taskmq.model.identity import Role


class RoleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role, the patterns of the tasks it may call, and the user's groups there."""

    role: Role
    tasks: tuple[ShortText, ...] = ("*",)
    groups: tuple[ShortText, ...] = ()


class NewRole(RoleBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role on one tenant, or on the whole instance (`*`)."""

    tenant: ShortText


class UserBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user to create. A user without a password can only use API tokens."""

    name: ShortText
    password: Secret | None = None
    email: ShortText = ""
    memberships: list[NewRole] = []


class UserChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a user. Omitted fields stay unchanged.

    Attributes:
        password: a new password, which ends the user's sessions and revokes their API tokens.
        keep_tokens: keep the API tokens valid when the password changes.
    """

    name: ShortText | msgspec.UnsetType = msgspec.UNSET
    email: ShortText | msgspec.UnsetType = msgspec.UNSET
    is_disabled: bool | msgspec.UnsetType = msgspec.UNSET
    password: Secret | msgspec.UnsetType = msgspec.UNSET
    keep_tokens: bool = False


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user. `memberships` is None in lists."""

    id: str
    name: str
    email: str
    created: str | None
    version: int
    disabled: str | None
    has_password: bool
    last_login: str | None
    memberships: list[MembershipView] | None


class ChangedUserView(UserView, frozen=True, kw_only=True):
    """A changed user, and what a new password ended or revoked.

    Without a new password the three counts are 0.
    """

    sessions_ended: int = 0
    tokens_revoked: int = 0
    tokens_left: int = 0


class UserList(msgspec.Struct, frozen=True):
    """Users ordered by name. `next` is the `after` of the next page."""

    items: list[UserView]
    next: str | None


class TenantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant to create."""

    name: ShortText
    description: Note = ""


class TenantChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a tenant. Omitted fields stay unchanged."""

    description: Note | None = None
    is_disabled: bool | None = None


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant. `disabled` is the time from which only instance roles have access."""

    name: str
    description: str
    created: str | None
    disabled: str | None


class TenantList(msgspec.Struct, frozen=True):
    """A list of all tenants, ordered by name."""

    items: list[TenantView]


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A user's role on a tenant."""

    user_id: str
    user: str
    tenant: str
    role: str
    tasks: list[str]
    groups: list[str] = []


class MemberList(msgspec.Struct, frozen=True):
    """Roles, ordered by tenant and user name."""

    items: list[MemberView]


class AuditEntryView(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log.

    Attributes:
        user, address, before, after, note: None if the personal data was erased.
        position: the position in the hash chain; None until the entry is sealed.
    """

    number: int
    at: str | None
    action: str
    kind: str
    subject: str
    tenant: str
    user_id: str
    user: str
    via: str
    address: str
    request_id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    note: str
    position: int | None


class ChainView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the audit log's hash chain.

    Attributes:
        entries: the number of intact entries. `head` is their POSITION:HASH, to be recorded elsewhere.
        fault: the first fault after those entries; "" if there is none.
        erased: entries whose personal data was erased; this does not break the chain.
        unsealed: entries not in the chain yet, because they are seconds old or no scheduler runs.
    """

    is_whole: bool
    entries: int
    head: str
    erased: int
    unsealed: int
    fault: str


class ChainLinks(msgspec.Struct, frozen=True):
    """Sealed entries in chain order, with hashes, salts and commitments in hexadecimal.

    Attributes:
        next: the `after` of the next page; None on the last page.
    """

    items: list[dict[str, Any]]
    next: int | None


class AuditEntries(msgspec.Struct, frozen=True):
    """Audit entries, newest first. `next` is the `after` of the next page."""

    items: list[AuditEntryView]
    next: int | None
