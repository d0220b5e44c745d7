"""The identity of a caller, and what it may do."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from taskmq.model.identity.roles import EVERYWHERE, GROUP, RULES, Level, Permission, Role


class Scope(msgspec.Struct, frozen=True):
    """The tenants that a query is limited to: rows of other tenants do not exist for it.

    Attributes:
        tenants: the tenants; None: all of them, and the rows of the instance.
    """

    tenants: frozenset[str] | None

    def has(self, tenant: str) -> bool:
        """Return whether the scope contains the tenant's rows."""
        return self.tenants is None or tenant in self.tenants

    def single(self) -> str | None:
        """Return the tenant of a scope with exactly one; None for others."""
        if self.tenants is None or len(self.tenants) != 1:
            return None
        (tenant,) = self.tenants
        return tenant


EVERYTHING_OF_ALL: Final = Scope(None)
"""Scope of the instance's own processes and administrators."""
NOTHING_AT_ALL: Final = Scope(frozenset())
_WILDCARDS: Final = frozenset("*?[")


class Membership(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's role on a tenant, or on the instance (`EVERYWHERE`).

    Attributes:
        tasks: patterns of tasks that the user may call there, such as `billing.*`.
        groups: groups of the user there; `finance` may answer a workflow's wait whose `roles` list `group:finance`.
    """

    tenant: str
    role: Role
    tasks: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ()


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A caller: a user, limited by their credential.

    Attributes:
        user_id: the user's permanent id.
        user: the user's name, the owner of their jobs.
        memberships: the user's roles.
        via: the kind of credential; `host`: the application that the API is mounted in vouches for them;
            `event`: a sender of events from outside, by its signature.
        credential: id of the session or token; not a secret.
        scopes: permissions that the credential is limited to; None: all of its user's.
        tenants: tenants that it is limited to; None: all of its user's.
        tasks: task patterns of the credential; a task must match one of these and one of the memberships'.
    """

    user_id: str
    user: str
    memberships: tuple[Membership, ...] = ()
    via: Literal["session", "token", "host", "cli", "oidc", "event"]
    credential: str = ""
    scopes: frozenset[Permission] | None = None
    tenants: frozenset[str] | None = None
    tasks: tuple[str, ...] = ("*",)


def may(identity: Identity, permission: Permission, tenant: str | None = None) -> bool:
    """Return whether the identity has a permission.

    Args:
        tenant: of the data; None: the data belongs to the instance or to no particular tenant. For a permission on
            tenants, None means the whole instance.
    """
    if identity.scopes is not None and permission not in identity.scopes:
        return False
    rule = RULES[permission]
    if rule.level is Level.ACCOUNT:
        return identity.scopes is not None or identity.via != "token"
    assert rule.role is not None
    return any(
        membership.role.includes(rule.role)
        for membership in identity.memberships
        if _counts(identity, membership, rule.level, tenant)
    )


def _counts(identity: Identity, membership: Membership, level: Level, tenant: str | None) -> bool:
    """Return whether a membership grants permissions of this level."""
    is_everywhere = membership.tenant == EVERYWHERE
    if level is Level.ANYWHERE and tenant is None:
        return identity.tenants is None or is_everywhere or membership.tenant in identity.tenants
    if level is Level.INSTANCE or tenant is None:
        # A credential limited to tenants has no access to what belongs to the instance.
        return is_everywhere and identity.tenants is None
    if identity.tenants is not None and tenant not in identity.tenants:
        return False
    return is_everywhere or membership.tenant == tenant


def roles_in(identity: Identity, tenant: str) -> list[Role]:
    """Return the roles that the identity has on a tenant, directly or through the instance."""
    return [
        membership.role for membership in identity.memberships if _counts(identity, membership, Level.TENANT, tenant)
    ]


def answers_as(identity: Identity, tenant: str) -> tuple[str, ...]:
    """Return the identity's roles with those below, and its groups, as the `roles` of a wait may list them."""
    roles = roles_in(identity, tenant)
    groups = {
        f"{GROUP}{group}"
        for membership in identity.memberships
        if _counts(identity, membership, Level.TENANT, tenant)
        for group in membership.groups
    }
    names = [role.value for role in Role if any(each.includes(role) for each in roles)]
    return (*names, *sorted(groups))


def scope_for(identity: Identity, permission: Permission) -> Scope:
    """Return the tenants in which the identity has a permission; `EVERYTHING_OF_ALL` if it has it on the instance.

    Rows of the instance are visible completely or not at all.
    """
    if not may(identity, permission) and RULES[permission].level is not Level.TENANT:
        return NOTHING_AT_ALL
    if RULES[permission].level in (Level.INSTANCE, Level.ACCOUNT) or _may_everywhere(identity, permission):
        return EVERYTHING_OF_ALL
    named = {membership.tenant for membership in identity.memberships} - {EVERYWHERE}
    named |= identity.tenants or set()
    return Scope(frozenset(tenant for tenant in named if may(identity, permission, tenant)))


def _may_everywhere(identity: Identity, permission: Permission) -> bool:
    role = RULES[permission].role
    return (
        identity.tenants is None
        and (identity.scopes is None or permission in identity.scopes)
        and any(
            membership.tenant == EVERYWHERE and role is not None and membership.role.includes(role)
            for membership in identity.memberships
        )
    )


def home(identity: Identity) -> str | None:
    """Return the tenant of a call that names none, if the identity has only one; None if the call must name it.

    For a role on the instance that is "", the tenant of jobs without one.
    """
    if identity.tenants is not None:
        return next(iter(identity.tenants)) if len(identity.tenants) == 1 else None
    tenants = {membership.tenant for membership in identity.memberships}
    if EVERYWHERE in tenants:
        return ""
    return next(iter(tenants)) if len(tenants) == 1 else None


def allows_task(identity: Identity, tenant: str, task: str) -> bool:
    """Return whether the identity may call the task for the tenant, by the patterns of its roles and of its token."""
    return all(_fits(task, patterns) for patterns in task_patterns(identity, tenant))


def allows_pattern(identity: Identity, tenant: str, pattern: str) -> bool:
    """Return whether the identity may call every task that a pattern can match."""
    return all(any(_includes(own, pattern) for own in have) for have in task_patterns(identity, tenant))


def _includes(own: str, pattern: str) -> bool:
    """Return whether a pattern matches only tasks that one of the own patterns matches."""
    begin = own.removesuffix("*")
    if pattern == own or (begin != own and not _WILDCARDS.intersection(begin) and pattern.startswith(begin)):
        return True
    return not _WILDCARDS.intersection(pattern) and fnmatchcase(pattern, own)


def task_patterns(identity: Identity, tenant: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two groups of patterns: the identity may call a task for the tenant that matches one of each group."""
    by_role = tuple(
        pattern
        for membership in identity.memberships
        if membership.role.includes(Role.SUBMITTER) and _counts(identity, membership, Level.TENANT, tenant)
        for pattern in membership.tasks
    )
    return identity.tasks, by_role


def may_give(identity: Identity, tenant: str, tasks: Iterable[str]) -> bool:
    """Return whether the identity, an admin of the tenant, may let others call tasks of these patterns there.

    Users cannot grant more than they have: each pattern must be one of their own, or they may call everything.
    """
    own = {
        pattern
        for membership in identity.memberships
        if membership.role.includes(Role.ADMIN) and _counts(identity, membership, Level.TENANT, tenant)
        for pattern in membership.tasks
    }
    return all("*" in have or pattern in have for pattern in tasks for have in (own, identity.tasks))


def may_take(identity: Identity, present: Iterable[Membership]) -> bool:
    """Return whether the identity, an admin, may change or remove a user with these roles.

    An admin has no power over a user who may call more tasks than the admin. Patterns of viewers do not count,
    because viewers may call no tasks.
    """
    return all(may_give(identity, one.tenant, one.tasks) for one in present if one.role.includes(Role.SUBMITTER))


def _fits(task: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(task, pattern) for pattern in patterns)
