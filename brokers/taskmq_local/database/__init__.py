"""The SQLite file of `local://`: one thread per process, transactions, tables, wake-ups between processes, maintenance."""
