"""`local://` as a state: one module per store, all in the SQLite file."""
