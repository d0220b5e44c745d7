"""Tests of every guarantee of `taskmq.contracts.identity`."""

from taskmq.testing.job_store_suite.identity.accounts import AccountCases
from taskmq.testing.job_store_suite.identity.audit import AuditCases
from taskmq.testing.job_store_suite.identity.logins import LoginCases
from taskmq.testing.job_store_suite.identity.roles import RoleCases
from taskmq.testing.job_store_suite.identity.sessions import SessionCases
from taskmq.testing.job_store_suite.identity.tokens import ApiTokenCases

__all__ = ["IdentityCases"]


class IdentityCases(AccountCases, RoleCases, LoginCases, SessionCases, ApiTokenCases, AuditCases):
    """Every guarantee of an `IdentityStore`."""
