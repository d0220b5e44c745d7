"""Sign-in, the current caller, and the caller's own tokens."""

import msgspec

from taskmq.api.values import Instant, Secret, ShortText


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user name and password to sign in with."""

    username: Secret
    password: Secret


class LoginView(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was just started.

    Attributes:
        token: the token for `Authorization: Bearer`. Browsers receive it in a cookie that scripts cannot read.
        csrf_token: the value for `X-CSRF-Token`, required with the cookie.
        expires_at: the latest end of the session. It also ends after half an hour without use.
    """

    status: str
    user: str
    token: str
    csrf_token: str
    expires_at: str | None


class PasswordBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The current and the new password. `revoke_tokens` also revokes all the caller's API tokens."""

    before: Secret
    after: Secret
    revoke_tokens: bool = False


class PasswordView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of sessions ended and tokens revoked by the new password, and of API tokens still valid."""

    status: str
    sessions_ended: int
    tokens_revoked: int
    tokens_left: int


class MembershipView(msgspec.Struct, frozen=True, kw_only=True):
    """A role on a tenant, or on the whole instance (`*`).

    Attributes:
        tasks: patterns of the tasks it may call.
        groups: groups of the user there; a wait whose `roles` list `group:NAME` takes their answers.
    """

    tenant: str
    role: str
    tasks: list[str]
    groups: list[str] = []


class CallerView(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and the credential of this request.

    Attributes:
        scopes: the token's scopes; None if they do not restrict the caller.
        permissions: permissions on the instance or on at least one tenant.
        csrf_token: the value for `X-CSRF-Token` in a browser session, otherwise None.
    """

    user_id: str
    user: str
    via: str
    memberships: list[MembershipView]
    scopes: list[str] | None
    permissions: list[str]
    csrf_token: str | None


class AuthorizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check whether a token's bearer may perform an action.

    Attributes:
        action: a permission, such as `jobs.read`.
        resource: a tenant. Omit it for the instance.
    """

    token: Secret
    action: ShortText
    resource: ShortText | None = None


class AuthorizeView(msgspec.Struct, frozen=True):
    """Whether the bearer may perform the action."""

    allowed: bool


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create.

    Attributes:
        scopes: permissions (`jobs.read`), groups of permissions (`jobs.*`) or all permissions of a role (`viewer`).
            Default: all the caller's permissions except those on their own account.
        tenants: the tenants the token is valid for. Default: all.
        tasks: patterns of the tasks the token may call.
        expires_at: the token's expiry. Default: the server's maximum token age, or never.
        password: the caller's own, required if the last sign-in was more than five minutes ago.
    """

    name: ShortText
    scopes: list[ShortText] | None = None
    tenants: list[ShortText] | None = None
    tasks: tuple[ShortText, ...] = ("*",)
    expires_at: Instant | None = None
    password: Secret | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. `user` is the name of its owner."""

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
    """A new token with its secret, which is shown only once."""

    secret: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """An active session of a user.

    Attributes:
        ends: the end of the session unless it is used before.
        address, agent: the client's IP address and user agent.
        is_own: whether this request belongs to the session.
    """

    id: str
    created: str | None
    last_used: str | None
    ends: str | None
    address: str
    agent: str
    is_own: bool


class SessionList(msgspec.Struct, frozen=True):
    """A list of sessions, newest first."""

    items: list[SessionView]


class TokenList(msgspec.Struct, frozen=True):
    """A list of tokens, newest first."""

    items: list[TokenView]


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """The server and its app.

    Attributes:
        app: the app's name.
        environment: the value of `--environment`, such as `production`; "" if not set.
        is_read_only: whether the server rejects all changes.
        is_development: whether the server runs for a developer on this machine, without sign-in.
    """

    app: str
    version: str
    environment: str
    is_read_only: bool
    is_development: bool
