"""The rows of an identity store, as dictionaries."""

import random
from collections.abc import Sequence

import msgspec

from taskmq.contracts.identity import ApiToken, BrowserSession, Tenant, User, UserAccount
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import EVERYWHERE, AuditEntry, AuditRecord, Membership, Role, recorded

__all__ = ["IdentityModel", "Secret", "Throttled"]


class Secret(msgspec.Struct):
    """A session or a token by the digest of its secret."""

    session: BrowserSession | None = None
    token: ApiToken | None = None


class Throttled(msgspec.Struct):
    """Counts the failed logins of one name or address."""

    failures: int
    at: int


class IdentityModel:
    """What several stores on one database have in common.

    Attributes:
        passwords: hashes, by the user's id.
    """

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        self.users: dict[str, User] = {}
        self.passwords: dict[str, str] = {}
        self.memberships: dict[tuple[str, str], Membership] = {}
        self.secrets: dict[bytes, Secret] = {}
        self.throttled: dict[str, Throttled] = {}
        self.known_logins: dict[str, int] = {}
        self.audit: list[AuditRecord] = []
        self._dice = random.Random(0)

    def note(self, now: int, entries: Sequence[AuditEntry]) -> None:
        """Write entries into the audit, with their numbers."""
        for entry in entries:
            salts = self._dice.randbytes(16), self._dice.randbytes(16)
            number = len(self.audit) + 1
            self.audit.append(recorded(entry, number=number, at=now, who_salt=salts[0], what_salt=salts[1]))

    def account(self, user: User) -> UserAccount:
        """A user with the roles that count."""
        roles = [each for (user_id, _), each in sorted(self.memberships.items()) if user_id == user.id]
        return UserAccount(user=user, memberships=tuple(each for each in roles if self._counts(each.tenant)))

    def _counts(self, tenant: str) -> bool:
        return tenant == EVERYWHERE or self.tenants[tenant].disabled is None

    def user(self, user_id: str) -> User:
        if (user := self.users.get(user_id)) is None:
            raise IdentityNotFound(f"there is no user {user_id!r}")
        return user

    def tenant(self, name: str) -> Tenant:
        if (tenant := self.tenants.get(name)) is None:
            raise IdentityNotFound(f"there is no tenant {name!r}")
        return tenant

    def admins(self) -> set[str]:
        """The ids of the instance's admins who are not disabled."""
        return {
            user_id
            for (user_id, tenant), membership in self.memberships.items()
            if tenant == EVERYWHERE and membership.role is Role.ADMIN and self.users[user_id].disabled is None
        }

    def keep_an_admin(self, user_id: str) -> None:
        """Refuse to take away the last admin."""
        if self.admins() == {user_id}:
            raise IdentityConflict("the instance would have no admin any more: make another user one first")

    def revoke_tokens(self, user_id: str) -> list[ApiToken]:
        """Forget a user's tokens; which they were."""
        found = {
            digest: secret.token
            for digest, secret in self.secrets.items()
            if secret.token is not None and secret.token.user_id == user_id
        }
        for digest in found:
            del self.secrets[digest]
        return list(found.values())

    def end_sessions(self, user_id: str, *, but: str = "") -> None:
        for digest, secret in list(self.secrets.items()):
            session = secret.session
            if session is not None and session.user_id == user_id and session.id != but:
                del self.secrets[digest]
