"""The job store on one SQLite file, for the processes of one host: `TaskMQ(store="sqlite:///jobs.db")`.

Python's own `sqlite3` is all that it needs. Each store has two threads: one writes, and what comes while a
transaction is on the disk is the next transaction; the other reads. A commit is on the disk when a call returns,
unless the URL says `?synchronous=normal`. Several processes may use one file: SQLite lets one of them write at a
time, and the others try again for some seconds.

The file has a row for each live job, which decides; what may be dispatched and what waits for its time have narrow
rows of their own, and jobs that have ended are moved to a table of their own in the transaction that ends them.
"""

from taskmq_sql.sqlite.location import open_store
from taskmq_sql.sqlite.store import SqliteJobStore

__all__ = ["SqliteJobStore", "open_store"]
