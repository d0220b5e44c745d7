"""Who may do what, on PostgreSQL and SQLite alike.

Each call is a generator: it yields statements, is sent their rows, and returns what the call comes to. One driver
runs it in a transaction of asyncpg, the other in one of sqlite3; so there is one text of each statement, with `$1`
for values and `taskmq.` before tables, which SQLite has not. Lists within values are JSON.

    tenant          `created` is null for one that jobs name and that was not added (PostgreSQL only)
    user            by a random id; the name is unique in lower case
    membership      roles, by user and tenant
    session, token  by the SHA-256 of their secrets
    login_failure   what failed logins count for
    audit           entries, never changed but by the erasure of a person
    audit_seal      the chain: one row for each entry, never changed

Sealing adds rows and changes none, so that a role may be given that can only append.
"""

from taskmq_sql.identity.audit import audited, note
from taskmq_sql.identity.store import SqlIdentities

__all__ = ["SqlIdentities", "audited", "note"]
