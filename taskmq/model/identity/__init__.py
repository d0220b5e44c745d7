"""Rules of access: who may do what. Pure.

A user has a role on tenants: viewer, submitter, operator or admin; each includes those before it. A role on
`EVERYWHERE` holds on the instance and on each of its tenants; `admin` there is the instance's admin. A handler needs
one `Permission`, and each permission one role (`RULES`). A token narrows what its user may do, by scopes, tenants and
task patterns, and never extends it.

    credential -> Identity -> may(identity, permission, tenant) -> Scope of a repository's query
"""

from taskmq.model.identity.audit import (
    GENESIS,
    AuditEntry,
    AuditRecord,
    ChainLink,
    broken_link,
    entry_digest,
    link,
    seal_records,
    to_record,
)
from taskmq.model.identity.identity import (
    EVERYTHING_OF_ALL,
    NOTHING_AT_ALL,
    Identity,
    Membership,
    Scope,
    allows_pattern,
    allows_task,
    answers_as,
    home,
    may,
    may_give,
    may_take,
    roles_in,
    scope_for,
    task_patterns,
)
from taskmq.model.identity.names import check_answerer, check_group, check_name, check_pattern, check_text
from taskmq.model.identity.passwords import check_password
from taskmq.model.identity.roles import (
    EVERYWHERE,
    RULES,
    SELF_SERVICE,
    Level,
    Permission,
    Role,
    permissions_of,
    read_scopes,
)
from taskmq.model.identity.secret_keys import (
    MOST_TOKENS,
    SecretKey,
    check_token_count,
    csrf_token,
    digest,
    is_token,
    session_key,
    token_key,
)
from taskmq.model.identity.throttle import (
    FORGET_AFTER_MS,
    REMEMBER_MS,
    ThrottleKey,
    confirmation_key,
    failures_at,
    network_of,
    throttle_keys,
    touches,
    wait_after,
)

__all__ = [
    "EVERYTHING_OF_ALL",
    "EVERYWHERE",
    "FORGET_AFTER_MS",
    "GENESIS",
    "MOST_TOKENS",
    "NOTHING_AT_ALL",
    "REMEMBER_MS",
    "RULES",
    "SELF_SERVICE",
    "AuditEntry",
    "AuditRecord",
    "ChainLink",
    "Identity",
    "Level",
    "Membership",
    "Permission",
    "Role",
    "Scope",
    "SecretKey",
    "ThrottleKey",
    "allows_pattern",
    "allows_task",
    "answers_as",
    "broken_link",
    "check_answerer",
    "check_group",
    "check_name",
    "check_password",
    "check_pattern",
    "check_text",
    "check_token_count",
    "confirmation_key",
    "csrf_token",
    "digest",
    "entry_digest",
    "failures_at",
    "home",
    "is_token",
    "link",
    "may",
    "may_give",
    "may_take",
    "network_of",
    "permissions_of",
    "read_scopes",
    "roles_in",
    "scope_for",
    "seal_records",
    "session_key",
    "task_patterns",
    "throttle_keys",
    "to_record",
    "token_key",
    "touches",
    "wait_after",
]
