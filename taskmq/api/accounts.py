"""Users, tenants, members, and what administrators have done."""

from typing import Any

import msgspec

from taskmq.api.sign_in import MembershipView
from taskmq.api.values import Note, Secret, ShortText
from taskmq.model.identity import Role

__all__ = [
    "AuditEntries",
    "AuditEntryView",
    "ChainLinks",
    "ChainView",
    "ChangedUserView",
    "MemberList",
    "MemberView",
    "NewRole",
    "RoleBody",
    "TenantBody",
    "TenantChangeBody",
    "TenantList",
    "TenantView",
    "UserBody",
    "UserChangeBody",
    "UserList",
    "UserView",
]


class RoleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role, and the patterns of the tasks that may be called with it."""

    role: Role
    tasks: tuple[ShortText, ...] = ("*",)


class NewRole(RoleBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role on a tenant, `*` for the instance."""

    tenant: ShortText


class UserBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user who is to be added; without a password they have tokens only."""

    name: ShortText
    password: Secret | None = None
    email: ShortText = ""
    memberships: list[NewRole] = []


class UserChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different about a user; what is left out stays.

    Attributes:
        password: with another one their sessions end, and their API tokens are revoked.
        keep_tokens: with another password their API tokens stay good.
    """

    name: ShortText | msgspec.UnsetType = msgspec.UNSET
    email: ShortText | msgspec.UnsetType = msgspec.UNSET
    is_disabled: bool | msgspec.UnsetType = msgspec.UNSET
    password: Secret | msgspec.UnsetType = msgspec.UNSET
    keep_tokens: bool = False


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user; `memberships` is None in lists."""

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
    """A user who was changed, what a new password has ended, and how many of their API tokens are still good.

    Without a new password the three figures are 0.
    """

    sessions_ended: int = 0
    tokens_revoked: int = 0
    tokens_left: int = 0


class UserList(msgspec.Struct, frozen=True):
    """Users by name; `next` is what to say as `after` for the next page."""

    items: list[UserView]
    next: str | None


class TenantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant that is to be added."""

    name: ShortText
    description: Note = ""


class TenantChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different; what is left out stays."""

    description: Note | None = None
    is_disabled: bool | None = None


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant; `disabled`: since when only the instance's roles have access."""

    name: str
    description: str
    created: str | None
    disabled: str | None


class TenantList(msgspec.Struct, frozen=True):
    """Lists all tenants by their names."""

    items: list[TenantView]


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """Who has which role."""

    user_id: str
    user: str
    tenant: str
    role: str
    tasks: list[str]


class MemberList(msgspec.Struct, frozen=True):
    """Roles, by tenant and name."""

    items: list[MemberView]


class AuditEntryView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done.

    Attributes:
        user, address, before, after, note: None where a person's data were erased.
        position: in the chain of hashes; None until it is sealed.
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
    """What became of looking through the chain of the audit.

    Attributes:
        entries: so far it is whole; `head` is POSITION:HASH there, to be written down elsewhere.
        fault: what is wrong behind that; "" where nothing is.
        erased: entries of which a person's data were erased; the chain is whole all the same.
        unsealed: entries that are not in the chain: seconds old, or no scheduler runs.
    """

    is_whole: bool
    entries: int
    head: str
    erased: int
    unsealed: int
    fault: str


class ChainLinks(msgspec.Struct, frozen=True):
    """Sealed entries in the order of the chain, with hashes, salts and commitments in hexadecimal digits.

    Attributes:
        next: what to say as `after` for the next ones; None at the end.
    """

    items: list[dict[str, Any]]
    next: int | None


class AuditEntries(msgspec.Struct, frozen=True):
    """Entries, the last one first; `next` is what to say as `after` for the next page."""

    items: list[AuditEntryView]
    next: int | None
