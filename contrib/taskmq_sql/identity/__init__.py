"""Tenants, users, credentials and the audit on PostgreSQL and SQLite.

Each call is a generator: it yields statements, receives their rows and returns the result. One driver runs it in a
transaction of asyncpg, the other in one of sqlite3. So each statement is written once, with `$1` for values and the
prefix `taskmq.` for tables, which the SQLite driver strips. Lists inside values are JSON.

    tenant          `created` is null for a tenant that jobs name but no user added (PostgreSQL only)
    user            keyed by a random id; names are unique in lower case
    membership      roles, by user and tenant
    session, token  keyed by the SHA-256 of their secrets
    login_failure   failed logins by throttle key
    audit           entries, changed only to erase a person
    audit_seal      the chain: one row per entry, never changed

Sealing only adds rows, so the database role that seals may be limited to appending.
"""

from taskmq_sql.identity.audit import audit_values, note
from taskmq_sql.identity.store import SqlIdentities

__all__ = ["SqlIdentities", "audit_values", "note"]
