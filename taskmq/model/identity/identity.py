"""Who calls, and what they may do."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from taskmq.model.identity.roles import EVERYWHERE, RULES, Permission, Place, Role

__all__ = [
    "EVERYTHING_OF_ALL",
    "NOTHING_AT_ALL",
    "Identity",
    "Membership",
    "Scope",
    "allows_pattern",
    "allows_task",
    "home",
    "may",
    "may_give",
    "may_take",
    "roles_in",
    "scope_for",
    "task_patterns",
]


class Scope(msgspec.Struct, frozen=True):
    """What every query of a repository takes: rows of other tenants do not exist for it.

    Attributes:
        tenants: whose rows; None: everybody's, and what belongs to the instance.
    """

    tenants: frozenset[str] | None

    def has(self, tenant: str) -> bool:
        """Whether the tenant's rows are in it."""
        return self.tenants is None or tenant in self.tenants

    def single(self) -> str | None:
        """Its tenant, where it is that of exactly one."""
        if self.tenants is None or len(self.tenants) != 1:
            return None
        (tenant,) = self.tenants
        return tenant


EVERYTHING_OF_ALL: Final = Scope(None)
"""For the instance's own processes and its administrators."""
NOTHING_AT_ALL: Final = Scope(frozenset())
_WILDCARDS: Final = frozenset("*?[")


class Membership(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's role on a tenant, or on the instance (`EVERYWHERE`).

    Attributes:
        tasks: patterns of the names of tasks that may be called there, such as `billing.*`.
    """

    tenant: str
    role: Role
    tasks: tuple[str, ...] = ("*",)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: a user, and what their credential leaves them of what they may do.

    Attributes:
        user_id: the user's id, which stays theirs.
        user: the user's name, which jobs have as their owner.
        memberships: the user's own.
        via: the kind of credential; `host`: the application that the API is mounted in vouches for them;
            `event`: a sender of events from outside, by its signature.
        credential: its id: the session's or the token's; no secret.
        scopes: what the credential is good for; None: for all that its user may do.
        tenants: where it is good; None: wherever its user has a role.
        tasks: patterns that the credential adds to those of the memberships: both must fit.
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
    """Whether the identity may do that.

    Args:
        tenant: whose data it is about; None: the instance's, or that of no tenant in particular. For a permission
            that is about tenants None asks for the instance as a whole.
    """
    if identity.scopes is not None and permission not in identity.scopes:
        return False
    rule = RULES[permission]
    if rule.place is Place.ACCOUNT:
        return identity.scopes is not None or identity.via != "token"
    assert rule.role is not None
    return any(
        membership.role.includes(rule.role)
        for membership in identity.memberships
        if _counts(identity, membership, rule.place, tenant)
    )


def _counts(identity: Identity, membership: Membership, place: Place, tenant: str | None) -> bool:
    """Whether a role there is one where the permission needs it."""
    is_everywhere = membership.tenant == EVERYWHERE
    if place is Place.ANYWHERE and tenant is None:
        return identity.tenants is None or is_everywhere or membership.tenant in identity.tenants
    if place is Place.INSTANCE or tenant is None:
        # A credential that is good for some tenants is good for nothing that is everybody's.
        return is_everywhere and identity.tenants is None
    if identity.tenants is not None and tenant not in identity.tenants:
        return False
    return is_everywhere or membership.tenant == tenant


def roles_in(identity: Identity, tenant: str) -> list[Role]:
    """The roles that the identity has on a tenant, by itself or by the instance."""
    return [
        membership.role for membership in identity.memberships if _counts(identity, membership, Place.TENANT, tenant)
    ]


def scope_for(identity: Identity, permission: Permission) -> Scope:
    """The tenants in which the identity may do that; `EVERYTHING_OF_ALL` where it may on the whole instance.

    Of what belongs to the instance there is everything or nothing.
    """
    if not may(identity, permission) and RULES[permission].place is not Place.TENANT:
        return NOTHING_AT_ALL
    if RULES[permission].place in (Place.INSTANCE, Place.ACCOUNT) or _may_everywhere(identity, permission):
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
    """The tenant of a call that names none: the only one that there is; None where it has to be named.

    For a role on the instance that is "", the tenant of jobs that have none.
    """
    if identity.tenants is not None:
        return next(iter(identity.tenants)) if len(identity.tenants) == 1 else None
    tenants = {membership.tenant for membership in identity.memberships}
    if EVERYWHERE in tenants:
        return ""
    return next(iter(tenants)) if len(tenants) == 1 else None


def allows_task(identity: Identity, tenant: str, task: str) -> bool:
    """Whether the identity may call the task for the tenant: by the patterns of its roles there, and of its token."""
    return all(_fits(task, patterns) for patterns in task_patterns(identity, tenant))


def allows_pattern(identity: Identity, tenant: str, pattern: str) -> bool:
    """Whether the identity may surely call every task that fits a pattern."""
    return all(any(_includes(own, pattern) for own in have) for have in task_patterns(identity, tenant))


def _includes(own: str, pattern: str) -> bool:
    """Whether all that fits a pattern fits one of one's own."""
    begin = own.removesuffix("*")
    if pattern == own or (begin != own and not _WILDCARDS.intersection(begin) and pattern.startswith(begin)):
        return True
    return not _WILDCARDS.intersection(pattern) and fnmatchcase(pattern, own)


def task_patterns(identity: Identity, tenant: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns, one of each of which a task has to fit for the identity to call it for the tenant."""
    by_role = tuple(
        pattern
        for membership in identity.memberships
        if membership.role.includes(Role.SUBMITTER) and _counts(identity, membership, Place.TENANT, tenant)
        for pattern in membership.tasks
    )
    return identity.tasks, by_role


def may_give(identity: Identity, tenant: str, tasks: Iterable[str]) -> bool:
    """Whether the identity, an admin of the tenant, may let others call tasks of these patterns there.

    A user cannot give more than they have: each pattern is one of their own, or they may call everything.
    """
    own = {
        pattern
        for membership in identity.memberships
        if membership.role.includes(Role.ADMIN) and _counts(identity, membership, Place.TENANT, tenant)
        for pattern in membership.tasks
    }
    return all("*" in have or pattern in have for pattern in tasks for have in (own, identity.tasks))


def may_take(identity: Identity, present: Iterable[Membership]) -> bool:
    """Whether the identity, an admin, may change or remove a user who has those roles.

    An admin has no power over a user who may call more tasks than the admin. The patterns of viewers, who may call
    none, do not count.
    """
    return all(may_give(identity, one.tenant, one.tasks) for one in present if one.role.includes(Role.SUBMITTER))


def _fits(task: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(task, pattern) for pattern in patterns)
