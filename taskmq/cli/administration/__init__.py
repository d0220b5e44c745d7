"""Commands for who may do what: accounts, and the audit of what was done."""
