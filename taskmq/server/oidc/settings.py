"""Settings of the OpenID Connect provider, and the mapping of its groups to roles."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from taskmq.errors import InvalidSetting
from taskmq.model.identity import Membership, Role

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class GroupRole(NamedTuple):
    """The role of a group's members.

    Attributes:
        tenant: the tenant; `*` for the instance.
    """

    group: str
    tenant: str
    role: Role

    @classmethod
    def read(cls, text: str) -> "GroupRole":
        """Read `GROUP=TENANT:ROLE`, such as `ops=*:operator`.

        Raises:
            InvalidSetting: it is malformed.
        """
        group, _, place = text.rpartition("=")
        tenant, _, role = place.rpartition(":")
        if not group or not tenant or role not in set(Role):
            roles = ", ".join(Role)
            raise InvalidSetting(
                f"OIDC role {text!r} must be GROUP=TENANT:ROLE, such as ops=*:operator; roles: {roles}"
            )
        return cls(group, tenant, Role(role))


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for sign-in with a provider.

    Attributes:
        issuer: the provider's issuer, exactly as in its discovery document.
        client_id, client_secret: this server's client at the provider; "" for a client without a secret.
        public_url: the public URL of this server with its root path, to which the provider redirects.
        roles: roles by group. Users without a role cannot sign in.
        groups_claim, name_claim: claims of the ID token.
        scopes: the requested scopes.

    Raises:
        InvalidSetting: a value is invalid.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    public_url: str
    roles: tuple[GroupRole, ...]
    groups_claim: str = "groups"
    name_claim: str = "preferred_username"
    scopes: tuple[str, ...] = ("openid", "profile", "email")

    def __post_init__(self) -> None:
        check_provider_url("issuer", self.issuer)
        check_provider_url("public URL", self.public_url)
        if not self.client_id:
            raise InvalidSetting("OIDC: the client id of this server at the provider is missing")
        if not self.roles:
            raise InvalidSetting("OIDC: no roles are configured, so no user could sign in: add GROUP=TENANT:ROLE")

    def __repr__(self) -> str:
        return f"OidcSettings(issuer={self.issuer!r}, client_id={self.client_id!r})"

    def memberships(self, groups: frozenset[str]) -> tuple[Membership, ...]:
        """Return a user's roles: for each tenant the highest role of these groups, and the groups that have one."""
        order = list(Role)
        found: dict[str, Membership] = {}
        for one in self.roles:
            if one.group in groups:
                known = found.get(one.tenant, Membership(one.tenant, one.role))
                role = max(known.role, one.role, key=order.index)
                found[one.tenant] = Membership(one.tenant, role, groups=(*known.groups, one.group))
        return tuple(found[tenant] for tenant in sorted(found))


def check_provider_url(what: str, url: str) -> str:
    """Check that a URL is HTTPS, or on this machine.

    Raises:
        InvalidSetting: it is not.
    """
    parts = urlsplit(url)
    is_local = parts.scheme == "http" and parts.hostname in _LOCAL
    if not parts.hostname or (parts.scheme != "https" and not is_local):
        raise InvalidSetting(f"OIDC {what} {url!r} must be https://, or http:// on this machine")
    return url
