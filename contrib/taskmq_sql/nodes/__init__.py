"""Host nodes and allocations, on PostgreSQL and SQLite alike.

Calls are generators of statements, like those of `taskmq_sql.identity`. A transaction that allocates first writes the
rows of the nodes, in the order of their names. So of two concurrent ones, the second waits and sees the first one's
allocations.

An allocation of a job is open while the job is under way with the token that the allocation names. The end of the job
does not update it: from that transaction on the allocation no longer counts, and `expire` records its end later.
"""

from taskmq_sql.nodes.allocations import insert_allocations, reserve
from taskmq_sql.nodes.store import PlacementQueries, SqlNodes

__all__ = ["PlacementQueries", "SqlNodes", "insert_allocations", "reserve"]
