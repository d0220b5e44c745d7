"""Conversion between rows and values."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.identity import ApiToken, BrowserSession, Tenant, User
from taskmq.model.identity import AuditRecord, Membership, Permission, Role
from taskmq_sql.steps import Row

TENANT_COLUMNS: Final = "t.name, t.description, t.created, t.disabled"
USER_COLUMNS: Final = (
    "u.id, u.name, u.email, u.created, u.version, u.disabled, u.password_changed, u.last_login, u.password"
)
ROLE_COLUMNS: Final = "m.tenant, m.role, m.tasks, m.groups"
SESSION_COLUMNS: Final = "s.id, s.user_id, s.created, s.last_used, s.idle_ms, s.ends, s.address, s.agent"
KEY_COLUMNS: Final = "k.id, k.user_id, k.name, k.scopes, k.tenants, k.tasks, k.created, k.expires, k.last_used"
AUDIT_COLUMNS: Final = (
    "a.number, a.at, a.action, a.kind, a.subject, a.tenant, a.user_id, a.via, a.credential, a.request_id, "
    "a.who, a.who_salt, a.who_commitment, a.what, a.what_salt, a.what_commitment, s.position, s.hash"
)


def tenant(row: Row) -> Tenant:
    name, description, created, disabled = row
    return Tenant(name=name, description=description, created=created, disabled=disabled)


def user(row: Row) -> User:
    user_id, name, email, created, version, disabled, password_changed, last_login, _ = row
    return User(
        id=user_id,
        name=name,
        email=email,
        created=created,
        version=version,
        disabled=disabled,
        password_changed=password_changed,
        last_login=last_login,
    )


def membership(row: Row) -> Membership:
    name, role, tasks, groups = row
    return Membership(name, Role(role), tuple(_list(tasks)), tuple(_list(groups)))


def browser_session(row: Row) -> BrowserSession:
    session_id, user_id, created, last_used, idle_ms, ends, address, agent = row
    return BrowserSession(
        id=session_id,
        user_id=user_id,
        created=created,
        last_used=last_used,
        idle_ms=idle_ms,
        ends=ends,
        address=address,
        agent=agent,
    )


def token(row: Row) -> ApiToken:
    token_id, user_id, name, scopes, tenants, tasks, created, expires, last_used = row
    return ApiToken(
        id=token_id,
        user_id=user_id,
        name=name,
        scopes=_scopes(scopes),
        tenants=None if tenants is None else frozenset(_list(tenants)),
        tasks=tuple(_list(tasks)),
        created=created,
        expires=expires,
        last_used=last_used,
    )


def audit_record(row: Row) -> AuditRecord:
    names = AuditRecord.__struct_fields__
    values: dict[str, Any] = dict(zip(names, row, strict=True))
    return AuditRecord(**values)


def encode_list(values: Iterable[str] | None) -> str | None:
    """Encode the values as a JSON list; None stays None."""
    return None if values is None else msgspec.json.encode(list(values)).decode()


def _scopes(text: str | None) -> frozenset[Permission] | None:
    # Permissions of a newer version are ignored: they grant nothing here.
    known = set(Permission)
    return None if text is None else frozenset(Permission(each) for each in _list(text) if each in known)


def _list(text: str) -> Sequence[str]:
    return msgspec.json.decode(text, type=list[str])
