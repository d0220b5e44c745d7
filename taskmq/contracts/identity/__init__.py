"""Contracts of identity: tenants, users, memberships, sessions, API tokens, failed logins, and the audit.

Every change names its `Actor`, and writes its audit entry in its own transaction. Secrets reach a store as hashes
only. Lists take a `Scope`: rows of other tenants do not exist for them.
"""

from taskmq.contracts.identity.accounts import AccountStore
from taskmq.contracts.identity.credentials import CredentialStore
from taskmq.contracts.identity.entries import AuditFilter, AuditPage, AuditStore
from taskmq.contracts.identity.records import (
    Actor,
    ApiToken,
    BrowserSession,
    NewApiToken,
    NewBrowserSession,
    NewUser,
    Tenant,
    User,
    UserAccount,
    UserChange,
)
from taskmq.contracts.identity.store import IdentityStore
from taskmq.contracts.identity.trail import Trail

__all__ = [
    "AccountStore",
    "Actor",
    "ApiToken",
    "AuditFilter",
    "AuditPage",
    "AuditStore",
    "BrowserSession",
    "CredentialStore",
    "IdentityStore",
    "NewApiToken",
    "NewBrowserSession",
    "NewUser",
    "Tenant",
    "Trail",
    "User",
    "UserAccount",
    "UserChange",
]
