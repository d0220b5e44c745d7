"""Commands for access control: accounts and the audit."""
