"""The job store in one SQLite file, for the processes of one host: `TaskMQ(store="sqlite:///jobs.db")`.

It needs only Python's own `sqlite3`. Each store has two threads: one reads, the other writes. Requests that arrive
during a commit form the next transaction. A call returns once its commit is on disk, unless the URL has
`?synchronous=normal`. Several processes may share a file: SQLite lets one write at a time, and the others retry for a
few seconds.

The file has one authoritative row for each live job. Ready and timed jobs have narrow rows in separate tables. The
transaction that ends a job moves it to the history.
"""

from taskmq_sql.sqlite.location import open_store
from taskmq_sql.sqlite.store import SqliteJobStore

__all__ = ["SqliteJobStore", "open_store"]
