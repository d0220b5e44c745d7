"""The SQLite file of `local://`: one thread per process does all work in it.

Transactions, tables and their migrations, wake-ups between processes, and maintenance: what is due, and what dead
processes held.
"""
