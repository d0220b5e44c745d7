"""The state of `local://`: one module per store, all in the SQLite file."""
