"""Audit entries of a store's own changes: the same in every adapter."""

from msgspec import UNSET

from taskmq.contracts.identity.records import (
    Actor,
    ApiToken,
    BrowserSession,
    NewApiToken,
    NewBrowserSession,
    NewUser,
    Tenant,
    User,
    UserChange,
)
from taskmq.model.identity import EVERYWHERE, AuditEntry, Membership


class Trail:
    """Creates the audit entries of one actor. No entry contains a secret, or the hash of one."""

    def __init__(self, by: Actor) -> None:
        self._by = by

    def tenant_added(self, tenant: Tenant) -> AuditEntry:
        return self._of_tenant("tenant.add", tenant.name, after=_tenant(tenant))

    def tenant_changed(self, before: Tenant, after: Tenant) -> AuditEntry:
        return self._of_tenant("tenant.change", after.name, before=_tenant(before), after=_tenant(after))

    def tenant_removed(self, tenant: Tenant) -> AuditEntry:
        return self._of_tenant("tenant.remove", tenant.name, before=_tenant(tenant))

    def user_added(self, user: NewUser) -> AuditEntry:
        after: dict[str, object] = {"name": user.name, "email": user.email, "has_password": bool(user.password_hash)}
        return self._by.entry("user.add", kind="user", subject=user.id, after=after)

    def user_changed(self, before: User, after: User, change: UserChange) -> list[AuditEntry]:
        """Return an entry for a new password, and one for all other changes."""
        entries: list[AuditEntry] = []
        if _user(before) != _user(after):
            entries.append(
                self._by.entry("user.change", kind="user", subject=after.id, before=_user(before), after=_user(after))
            )
        if change.password_hash is not UNSET:
            entries.append(self._by.entry("user.password", kind="user", subject=after.id))
        return entries

    def user_erased(self, user_id: str) -> AuditEntry:
        return self._by.entry("user.erase", kind="user", subject=user_id)

    def role_set(self, user_id: str, before: Membership | None, after: Membership) -> AuditEntry:
        return self._of_role("role.set", user_id, before, after)

    def role_removed(self, user_id: str, before: Membership) -> AuditEntry:
        return self._of_role("role.remove", user_id, before, None)

    def session_begun(self, session: NewBrowserSession) -> AuditEntry:
        after: dict[str, object] = {"user": session.user_id, "agent": session.agent}
        return self._by.entry("session.begin", kind="session", subject=session.id, after=after)

    def session_ended(self, session: BrowserSession) -> AuditEntry:
        return self._by.entry("session.end", kind="session", subject=session.id, before={"user": session.user_id})

    def token_added(self, token: NewApiToken) -> AuditEntry:
        after: dict[str, object] = {
            "user": token.user_id,
            "name": token.name,
            "scopes": None if token.scopes is None else sorted(token.scopes),
            "tenants": None if token.tenants is None else sorted(token.tenants),
            "tasks": list(token.tasks),
            "expires": token.expires,
        }
        return self._by.entry("token.add", kind="token", subject=token.id, after=after)

    def token_revoked(self, token: ApiToken) -> AuditEntry:
        before: dict[str, object] = {"user": token.user_id, "name": token.name}
        return self._by.entry("token.revoke", kind="token", subject=token.id, before=before)

    def _of_tenant(
        self,
        action: str,
        name: str,
        *,
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> AuditEntry:
        return self._by.entry(action, kind="tenant", subject=name, tenant=name, before=before, after=after)

    def _of_role(self, action: str, user_id: str, before: Membership | None, after: Membership | None) -> AuditEntry:
        where = next(each.tenant for each in (after, before) if each is not None)
        tenant = "" if where == EVERYWHERE else where
        return self._by.entry(
            action, kind="user", subject=user_id, tenant=tenant, before=_role(before), after=_role(after)
        )


def _tenant(tenant: Tenant) -> dict[str, object]:
    return {"description": tenant.description, "is_disabled": tenant.disabled is not None}


def _user(user: User) -> dict[str, object]:
    return {"name": user.name, "email": user.email, "is_disabled": user.disabled is not None}


def _role(membership: Membership | None) -> dict[str, object] | None:
    if membership is None:
        return None
    role: dict[str, object] = {
        "tenant": membership.tenant,
        "role": membership.role,
        "tasks": list(membership.tasks),
    }
    return role | ({"groups": list(membership.groups)} if membership.groups else {})
