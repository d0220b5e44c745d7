"""Signing in, who calls, and one's own tokens."""

import msgspec

from taskmq.api.values import Instant, Secret, ShortText

__all__ = [
    "AuthorizeBody",
    "AuthorizeView",
    "CallerView",
    "LoginBody",
    "LoginView",
    "MembershipView",
    "NewTokenView",
    "PasswordBody",
    "PasswordView",
    "ServerView",
    "SessionList",
    "SessionView",
    "TokenBody",
    "TokenList",
    "TokenView",
]


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Name and password of the user who signs in."""

    username: Secret
    password: Secret


class LoginView(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has begun.

    Attributes:
        token: for `Authorization: Bearer`; browsers have the same in a cookie that scripts cannot read.
        csrf_token: for `X-CSRF-Token`, where the cookie is used.
        expires_at: when it ends, however it is used; half an hour without use ends it, too.
    """

    status: str
    user: str
    token: str
    csrf_token: str
    expires_at: str | None


class PasswordBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The present password, and the next one; `revoke_tokens` revokes all API tokens of one's own, too."""

    before: Secret
    after: Secret
    revoke_tokens: bool = False


class PasswordView(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions and tokens that a new password has ended, and the number of API tokens still good."""

    status: str
    sessions_ended: int
    tokens_revoked: int
    tokens_left: int


class MembershipView(msgspec.Struct, frozen=True, kw_only=True):
    """A role on a tenant, `*` for the instance; `tasks` are the patterns of those that may be called there."""

    tenant: str
    role: str
    tasks: list[str]


class CallerView(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and by which credential.

    Attributes:
        scopes: None where they narrow nothing.
        permissions: what the caller may do, on the instance or at least on one tenant.
        csrf_token: of a browser's session, for `X-CSRF-Token`; else None.
    """

    user_id: str
    user: str
    via: str
    memberships: list[MembershipView]
    scopes: list[str] | None
    permissions: list[str]
    csrf_token: str | None


class AuthorizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the bearer of a token may do something.

    Attributes:
        action: a permission, such as `jobs.read`.
        resource: a tenant; absent for the instance's.
    """

    token: Secret
    action: ShortText
    resource: ShortText | None = None


class AuthorizeView(msgspec.Struct, frozen=True):
    """Says whether the caller may do what was asked about."""

    allowed: bool


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that is to be made.

    Attributes:
        scopes: permissions (`jobs.read`), all of a kind (`jobs.*`), or what a role may do (`viewer`). Default: all
            that one may do, but for one's own account.
        tenants: where it is good. Default: everywhere.
        tasks: patterns of the tasks that it may call.
        expires_at: when it ends. Default: at the greatest age that the server has for tokens, or never.
        password: one's own, where the last sign-in is more than five minutes ago.
    """

    name: ShortText
    scopes: list[ShortText] | None = None
    tenants: list[ShortText] | None = None
    tasks: tuple[ShortText, ...] = ("*",)
    expires_at: Instant | None = None
    password: Secret | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret; `user` is the name of the one whose it is."""

    id: str
    user: str
    name: str
    scopes: list[str] | None
    tenants: list[str] | None
    tasks: list[str]
    created: str | None
    expires_at: str | None
    last_used: str | None


class NewTokenView(TokenView, frozen=True, kw_only=True):
    """A token with its secret, which is shown this once."""

    secret: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in that has not ended.

    Attributes:
        ends: when it does unless it is used before.
        address, agent: from where, and what the browser said that it is.
        is_own: the one of this call.
    """

    id: str
    created: str | None
    last_used: str | None
    ends: str | None
    address: str
    agent: str
    is_own: bool


class SessionList(msgspec.Struct, frozen=True):
    """Sessions, the last one first."""

    items: list[SessionView]


class TokenList(msgspec.Struct, frozen=True):
    """Tokens, the last one first."""

    items: list[TokenView]


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """Whom one talks to.

    Attributes:
        app: its name.
        environment: what `--environment` says, such as `production`; "" without it.
        is_read_only: nothing can be changed through this server.
        is_development: there is no sign-in: it is for this machine's developer.
    """

    app: str
    version: str
    environment: str
    is_read_only: bool
    is_development: bool
