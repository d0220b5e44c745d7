"""Identities of a database: accounts, credentials and the audit."""

from taskmq_sql.identity.accounts import SqlAccounts
from taskmq_sql.identity.audit import SqlAudit
from taskmq_sql.identity.credentials import SqlCredentials
from taskmq_sql.steps import Runner


class SqlIdentities:
    """An `IdentityStore` in the database's tables."""

    def __init__(self, runner: Runner) -> None:
        self.accounts = SqlAccounts(runner)
        self.credentials = SqlCredentials(runner)
        self.audit = SqlAudit(runner)
