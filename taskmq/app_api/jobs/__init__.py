"""Jobs of the store, bulk operations, tasks and definitions."""
