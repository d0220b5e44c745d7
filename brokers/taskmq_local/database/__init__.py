"""The SQLite file of `local://`: one thread per process and object does all its work.

It has transactions, tables and their migrations, wakeups between processes, and maintenance: due messages, and
messages of dead processes.
"""
