"""Roles, permissions, and the role that each permission needs."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from taskmq.errors import InvalidOption

EVERYWHERE: Final = "*"
"""The tenant of a role on the whole instance."""
GROUP: Final = "group:"
"""Prefix of a group among the `roles` of a wait."""


class Role(StrEnum):
    """A role of a user in a tenant; each includes those before it."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Return whether this role may do everything that `other` may."""
        return _RANKS[self] >= _RANKS[other]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}


class Level(StrEnum):
    """A level at which a permission needs a role."""

    TENANT = "tenant"
    """On the tenant of the data, or on the instance."""
    INSTANCE = "instance"
    """On the instance: queues, workers, nodes and dead letters belong to no tenant."""
    ANYWHERE = "anywhere"
    """On any tenant, or on the instance."""
    ACCOUNT = "account"
    """Nowhere: a user's own account, sessions and tokens need no role."""


class Permission(StrEnum):
    """A permission, one for each kind of handler. The values are also the scopes of tokens."""

    JOBS_READ = "jobs.read"
    JOBS_SUBMIT = "jobs.submit"
    JOBS_CHANGE = "jobs.change"
    JOBS_BULK = "jobs.bulk"
    DEFINITIONS_READ = "definitions.read"
    DEFINITIONS_CHANGE = "definitions.change"
    SCHEDULES_READ = "schedules.read"
    SCHEDULES_OPERATE = "schedules.operate"
    SCHEDULES_CHANGE = "schedules.change"
    WORKFLOWS_READ = "workflows.read"
    WORKFLOWS_OPERATE = "workflows.operate"
    LOGS_READ = "logs.read"
    METRICS_READ = "metrics.read"
    FAILURES_CHANGE = "failures.change"
    ALERTS_READ = "alerts.read"
    ALERTS_CHANGE = "alerts.change"
    EVENTS_READ = "events.read"
    EVENTS_SEND = "events.send"
    TASKS_READ = "tasks.read"
    MEMBERS_READ = "members.read"
    MEMBERS_CHANGE = "members.change"
    AUDIT_READ = "audit.read"
    AUDIT_VERIFY = "audit.verify"
    QUEUES_READ = "queues.read"
    QUEUES_OPERATE = "queues.operate"
    QUEUES_PURGE = "queues.purge"
    DEAD_LETTERS_READ = "dead_letters.read"
    DEAD_LETTERS_REPLAY = "dead_letters.replay"
    DEAD_LETTERS_PURGE = "dead_letters.purge"
    NODES_READ = "nodes.read"
    NODES_REPORT = "nodes.report"
    NODES_OPERATE = "nodes.operate"
    WORKERS_READ = "workers.read"
    WORKERS_CONTROL = "workers.control"
    SYSTEM_READ = "system.read"
    POOLS_READ = "pools.read"
    POOLS_CHANGE = "pools.change"
    RESOURCES_ALLOCATE = "resources.allocate"
    TENANTS_READ = "tenants.read"
    TENANTS_CHANGE = "tenants.change"
    USERS_READ = "users.read"
    USERS_CHANGE = "users.change"
    ACCOUNT_READ = "account.read"
    ACCOUNT_CHANGE = "account.change"


class Rule(NamedTuple):
    """The role that a permission needs.

    Attributes:
        role: the minimum; None for `Level.ACCOUNT`.
        about: what the permission allows, for the table in docs/security.md.
    """

    level: Level
    role: Role | None
    about: str


_TENANT, _INSTANCE, _ANYWHERE = Level.TENANT, Level.INSTANCE, Level.ANYWHERE
_VIEWER, _SUBMITTER, _OPERATOR, _ADMIN = Role

RULES: Final[Mapping[Permission, Rule]] = {
    Permission.JOBS_READ: Rule(_TENANT, _VIEWER, "list and read jobs, their history, attempts and explanation"),
    Permission.JOBS_SUBMIT: Rule(
        _TENANT, _SUBMITTER, "submit and clone jobs, start workflows, of the tasks that the patterns allow"
    ),
    Permission.JOBS_CHANGE: Rule(_TENANT, _SUBMITTER, "change, cancel, hold, release and retry single jobs"),
    Permission.JOBS_BULK: Rule(_TENANT, _OPERATOR, "cancel, hold, release, retry and change many jobs by a filter"),
    Permission.DEFINITIONS_READ: Rule(
        _TENANT, _VIEWER, "list and read definitions and workflows, and their versions"
    ),
    Permission.DEFINITIONS_CHANGE: Rule(
        _TENANT, _OPERATOR, "put and delete definitions, store and activate workflows"
    ),
    Permission.SCHEDULES_READ: Rule(_TENANT, _VIEWER, "list and read schedules and their next occurrences"),
    Permission.SCHEDULES_OPERATE: Rule(_TENANT, _OPERATOR, "pause, resume, run and backfill schedules"),
    Permission.SCHEDULES_CHANGE: Rule(_TENANT, _OPERATOR, "add, change and remove schedules"),
    Permission.WORKFLOWS_READ: Rule(_TENANT, _VIEWER, "list and read runs of workflows and their graphs"),
    Permission.WORKFLOWS_OPERATE: Rule(_TENANT, _OPERATOR, "close, cancel and redrive runs of workflows"),
    Permission.LOGS_READ: Rule(_TENANT, _VIEWER, "read and search the logs of jobs"),
    Permission.METRICS_READ: Rule(_TENANT, _VIEWER, "query rollups of a tenant's jobs"),
    Permission.FAILURES_CHANGE: Rule(_TENANT, _OPERATOR, "resolve, mute and reopen groups of failures"),
    Permission.ALERTS_READ: Rule(_TENANT, _VIEWER, "list alerts and their rules"),
    Permission.ALERTS_CHANGE: Rule(_TENANT, _OPERATOR, "change, test and silence alert rules"),
    Permission.EVENTS_READ: Rule(_TENANT, _VIEWER, "follow a tenant's live events"),
    Permission.EVENTS_SEND: Rule(_TENANT, _SUBMITTER, "send an outside event, or a signal to a run"),
    Permission.TASKS_READ: Rule(_ANYWHERE, _VIEWER, "list tasks and the schema of their arguments"),
    Permission.MEMBERS_READ: Rule(_TENANT, _ADMIN, "list the members of a tenant and their roles"),
    Permission.MEMBERS_CHANGE: Rule(_TENANT, _ADMIN, "grant and revoke roles in a tenant"),
    Permission.AUDIT_READ: Rule(_TENANT, _ADMIN, "read a tenant's audit entries"),
    Permission.AUDIT_VERIFY: Rule(_INSTANCE, _ADMIN, "verify and export the chain of all audit entries"),
    Permission.QUEUES_READ: Rule(_INSTANCE, _VIEWER, "list queues and their figures"),
    Permission.QUEUES_OPERATE: Rule(_INSTANCE, _OPERATOR, "pause and resume queues"),
    Permission.QUEUES_PURGE: Rule(_INSTANCE, _ADMIN, "purge queues, move their messages"),
    Permission.DEAD_LETTERS_READ: Rule(_TENANT, _OPERATOR, "browse dead letters of a tenant's jobs"),
    Permission.DEAD_LETTERS_REPLAY: Rule(_TENANT, _OPERATOR, "replay dead letters"),
    Permission.DEAD_LETTERS_PURGE: Rule(_TENANT, _OPERATOR, "purge dead letters"),
    Permission.NODES_READ: Rule(_INSTANCE, _VIEWER, "list nodes"),
    Permission.NODES_REPORT: Rule(_INSTANCE, _OPERATOR, "register a node and report its state"),
    Permission.NODES_OPERATE: Rule(_INSTANCE, _OPERATOR, "drain, label and remove nodes"),
    Permission.WORKERS_READ: Rule(_INSTANCE, _VIEWER, "list workers"),
    Permission.WORKERS_CONTROL: Rule(
        _INSTANCE, _OPERATOR, "pause and drain workers, change their concurrency, read their stacks"
    ),
    Permission.SYSTEM_READ: Rule(
        _INSTANCE, _VIEWER, "read the health of schedulers, servers and clocks, with their addresses"
    ),
    Permission.POOLS_READ: Rule(_INSTANCE, _VIEWER, "list pools, allocations and their use"),
    Permission.POOLS_CHANGE: Rule(_INSTANCE, _ADMIN, "change pools, shares and quotas"),
    Permission.RESOURCES_ALLOCATE: Rule(_INSTANCE, _OPERATOR, "allocate and release resources manually"),
    Permission.TENANTS_READ: Rule(_ANYWHERE, _VIEWER, "list the tenants in which the user has a role"),
    Permission.TENANTS_CHANGE: Rule(_INSTANCE, _ADMIN, "add, change and remove tenants"),
    Permission.USERS_READ: Rule(_INSTANCE, _ADMIN, "list users, their sessions and their tokens"),
    Permission.USERS_CHANGE: Rule(_INSTANCE, _ADMIN, "add, disable and erase users, revoke sessions and tokens"),
    Permission.ACCOUNT_READ: Rule(Level.ACCOUNT, None, "read one's own account, sessions and tokens"),
    Permission.ACCOUNT_CHANGE: Rule(Level.ACCOUNT, None, "change one's own password, sessions and tokens"),
}

SELF_SERVICE: Final = frozenset(permission for permission, rule in RULES.items() if rule.level is Level.ACCOUNT)
"""Permissions that a token has only if its scopes name them; otherwise a stolen token could create another one."""


def permissions_of(role: Role, level: Level) -> frozenset[Permission]:
    """Return the permissions of a role at this level: in a tenant, or in the instance."""
    # A role on the instance holds on each tenant.
    levels = {level, Level.ANYWHERE, Level.ACCOUNT, *([Level.TENANT] if level is Level.INSTANCE else [])}
    return frozenset(
        permission
        for permission, rule in RULES.items()
        if rule.level in levels and (rule.role is None or role.includes(rule.role))
    )


def read_scopes(words: Iterable[str]) -> frozenset[Permission]:
    """Parse scopes: permissions (`jobs.read`), all of a kind (`jobs.*`), or the permissions of a role (`viewer`).

    Raises:
        InvalidOption: a word is not a scope.
    """
    return frozenset(permission for word in words for permission in _scopes(word))


def _scopes(word: str) -> frozenset[Permission]:
    if word in RULES:
        return frozenset({Permission(word)})
    if word in _RANKS:
        return permissions_of(Role(word), Level.INSTANCE) - SELF_SERVICE
    kind = frozenset(permission for permission in RULES if word == f"{permission.value.partition('.')[0]}.*")
    if not kind:
        raise InvalidOption(f"unknown scope {word!r}: use a permission (jobs.read), a kind (jobs.*) or a role")
    return kind
