"""What job stores on SQL have in common: their tables, and how values stand in them."""
