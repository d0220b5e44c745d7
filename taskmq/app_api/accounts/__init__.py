"""Users and tenants, and what administrators have done."""
