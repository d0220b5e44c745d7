"""Keys that authenticate the tokens a store issued, newest first.

The migration creates the first one. They have their own table, so that database roles which apply no reports need no
right to read it.
"""

import secrets
from typing import Final

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.proofs import ReportKey, new_report_key
from taskmq_sql.identity import note
from taskmq_sql.steps import LOCK, SqlCalls, Steps, ask, clock, read_call, write_call

_READ: Final = "select id, secret from taskmq.report_key order by number desc"
_ADD: Final = "insert into taskmq.report_key (id, secret, created) values ($1, $2, $3)"
_FORGET: Final = "delete from taskmq.report_key"


class SqlReportKeys(SqlCalls):
    """Report keys of a `DispatchStore` in the database's table."""

    @read_call
    def read(self) -> Steps[list[ReportKey]]:
        """See `DispatchStore.report_keys`."""
        return (yield from read_keys())

    @write_call
    def rotate(self, *, forgets: bool, audit: AuditEntry | None) -> Steps[str]:
        """See `DispatchStore.rotate_report_key`."""
        now = yield from clock()
        yield LOCK
        known = {key.id for key in (yield from read_keys())}
        key = new_report_key(secrets.token_bytes(35))
        while key.id in known:
            key = new_report_key(secrets.token_bytes(35))
        if forgets:
            yield from ask(_FORGET)
        yield from ask(_ADD, key.id, key.secret, now)
        if audit is not None:
            yield from note([audit])
        return key.id


def read_keys() -> Steps[list[ReportKey]]:
    """Read all keys, as part of the transaction that applies reports."""
    return [ReportKey(key_id, bytes(secret)) for key_id, secret in (yield from ask(_READ))]
