"""Sign-in and the administration of tenants, users, roles, sessions and tokens over HTTP."""

from taskmq.server.accounts.audit_entries import AUDIT_HANDLERS
from taskmq.server.accounts.login import LOGIN_HANDLERS
from taskmq.server.accounts.sessions import SESSION_HANDLERS
from taskmq.server.accounts.tenants import TENANT_HANDLERS
from taskmq.server.accounts.tokens import TOKEN_HANDLERS
from taskmq.server.accounts.users import USER_HANDLERS

__all__ = ["ACCOUNT_HANDLERS"]

ACCOUNT_HANDLERS = (
    *LOGIN_HANDLERS,
    *TOKEN_HANDLERS,
    *SESSION_HANDLERS,
    *USER_HANDLERS,
    *TENANT_HANDLERS,
    *AUDIT_HANDLERS,
)
