"""Users, tenants, tokens and the audit log."""
