"""Which provider is asked, as whom, and which groups there have which roles here."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from taskmq.errors import InvalidSetting
from taskmq.model.identity import Membership, Role

__all__ = ["GroupRole", "OidcSettings", "check_provider_url"]

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class GroupRole(NamedTuple):
    """The role that the members of a group have.

    Attributes:
        tenant: where; `*` for the instance.
    """

    group: str
    tenant: str
    role: Role

    @classmethod
    def read(cls, text: str) -> "GroupRole":
        """Read `GROUP=TENANT:ROLE`, such as `ops=*:operator`.

        Raises:
            InvalidSetting: it is none.
        """
        group, _, place = text.rpartition("=")
        tenant, _, role = place.rpartition(":")
        if not group or not tenant or role not in set(Role):
            roles = ", ".join(Role)
            raise InvalidSetting(f"OIDC role {text!r}: GROUP=TENANT:ROLE, such as ops=*:operator; roles: {roles}")
        return cls(group, tenant, Role(role))


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How users sign in by a provider.

    Attributes:
        issuer: the provider's, exactly as it says itself.
        client_id, client_secret: of this server at the provider; "" for a client that has no secret.
        public_url: where browsers see this server, with its root path: what the provider sends them back to.
        roles: who has none by their groups cannot sign in.
        groups_claim, name_claim: of the ID token.
        scopes: that are asked for.

    Raises:
        InvalidSetting: a value that cannot be.
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
            raise InvalidSetting("OIDC: which client is this server at the provider? Say its client id")
        if not self.roles:
            raise InvalidSetting(
                "OIDC: which group has which role? Without one no user can sign in: say GROUP=TENANT:ROLE"
            )

    def __repr__(self) -> str:
        return f"OidcSettings(issuer={self.issuer!r}, client_id={self.client_id!r})"

    def memberships(self, groups: frozenset[str]) -> tuple[Membership, ...]:
        """The roles of a user in these groups: on each tenant the highest one."""
        order = list(Role)
        found: dict[str, Role] = {}
        for one in self.roles:
            if one.group in groups:
                found[one.tenant] = max(found.get(one.tenant, one.role), one.role, key=order.index)
        return tuple(Membership(tenant, role) for tenant, role in sorted(found.items()))


def check_provider_url(what: str, url: str) -> str:
    """See that a URL is HTTPS, or of this machine.

    Raises:
        InvalidSetting: it is not.
    """
    parts = urlsplit(url)
    is_local = parts.scheme == "http" and parts.hostname in _LOCAL
    if not parts.hostname or (parts.scheme != "https" and not is_local):
        raise InvalidSetting(f"OIDC {what} {url!r}: it has to be https://, or http:// on this machine")
    return url
